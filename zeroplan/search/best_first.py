"""The fastest strategy that fits, found by bounds: what could be fastest is looked at first.

What computes alike waits together, under the seconds that computing takes. When it comes up, it is left out if the
model alone has no room, and else each of its choices waits under the seconds that it takes at least. A choice that
comes up is left out if it cannot fit, and else gives way to its numbers, each under its own seconds; the first of these
that fits is the fastest of all, for whatever still waits takes as long at least. Of equally fast ones the simplest
comes first. After its limit of work a search stops; what waits then is completed, and its first entry bounds all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from zeroplan.costs.deepspeed.fetch import MicroSteps, micro_steps
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.record import NamedTuple
from zeroplan.search.bounds import ROUNDED, Bounds
from zeroplan.search.candidate import Candidate
from zeroplan.search.incumbent import Start, fastest_of
from zeroplan.search.room import UNSAID, gathers
from zeroplan.search.space import BYTELESS, Branch, Root, Space, simplicity, timeless
from zeroplan.search.work import Work
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import STAGES

ALIKE, COMPUTING, ROUGH, BOUND, GATHERED, EXACT = range(6)
"""What a waiting entry's seconds are: of computing alone, for all that compute alike or for one of them; of all without
products that run again, with them, with gathers as stage 3's coordinator issues them, and as they are."""
REDUCE = "reduce_bucket_size"


class Found(NamedTuple):
    """What a search came to."""

    best: Candidate | None
    stood_for: int = 0
    """Strategies of the space; how many of them were timed, and how many counted to the byte."""
    timed: int = 0
    counted: int = 0
    bound: float | None = None
    """After its limit of work: no strategy takes fewer seconds, or needs fewer bytes; None: nothing is left to look at,
    so that the best is the best of all, or nothing fits."""

    @property
    def proven(self) -> bool:
        """Whether no other strategy is better, or none fits."""
        return self.bound is None


class Waiting(NamedTuple):
    """What a heap has on top: the fewest seconds, then the simplest that it may come to."""

    seconds: float
    simplicity: tuple[Any, ...]
    kind: int
    turn: int
    job: Job
    """Its open numbers have their usual values."""
    branch: Branch
    open: tuple[str, ...]


class Search:
    """Entries that wait, the one with the fewest seconds first."""

    def __init__(self, space: Space, bounds: Bounds) -> None:
        self.space, self.bounds = space, bounds
        self.waiting: list[Waiting] = []
        self.turn = count()
        self.timed = 0
        self.alike: dict[int, list[Root]] = {}
        """Of entries that stand for several choices, by their turn."""
        self.gathered: dict[Hashable, tuple[tuple[Any, ...], MicroSteps]] = {}
        """Of strategies that gather alike, whatever their thresholds, the simplicity of the simplest looked at."""
        self.reduces: dict[Hashable, bool] = {}
        """Of strategies that reduce alike, whatever they gather, whether the card could hold it."""

    def push(self, seconds: float, kind: int, job: Job, branch: Branch, still_open: tuple[str, ...] = ()) -> None:
        entry = Waiting(seconds, simplicity(job, branch), kind, next(self.turn), job, branch, still_open)
        heappush(self.waiting, entry)

    def start(self, roots: Iterable[Root]) -> None:
        """All that waits at first: together what computes alike."""
        alike: dict[Hashable, list[Root]] = {}
        for branch, size in roots:
            choice = branch.choice
            alike.setdefault((choice["stage"] == STAGES[-1], choice["checkpointing"], choice["attention"], size),
                             []).append((branch, size))  # fmt: skip
        for together in alike.values():
            job = self._usual(*together[0])
            self._wait_together(together, job, self.bounds.computing_alone(job, traced=False))

    def _usual(self, branch: Branch, size: int) -> Job:
        return self.space.sized(branch, size).at(**branch.usual(branch.numbers))

    def _wait_together(self, alike: list[Root], job: Job, seconds: float) -> None:
        """Before all that is as fast and waits alone: the simplest of that may be among them. `job`: of the first."""
        branch, _size = alike[0]
        entry = Waiting(seconds, (), ALIKE, next(self.turn), job, branch, branch.open)
        self.alike[entry.turn] = alike
        heappush(self.waiting, entry)

    def _part(self, entry: Waiting) -> None:
        """Each choice waits alone, once what runs again is among the seconds, if the card has room for the model."""
        alike, like = self.alike.pop(entry.turn), entry.job.at(memory_efficient_linear=False)
        seconds = self.bounds.computing_alone(like)  # at stage 3 as much runs again, or more
        if seconds > entry.seconds:
            self._wait_together(alike, entry.job, seconds)
        elif self.bounds.may_run(entry.job):
            for branch, size in alike:
                self.push(seconds, COMPUTING, self._usual(branch, size), branch, branch.open)

    def next(self, within: float = inf) -> Candidate | None:
        """The fastest of what waits that fits, which waits no more; None when nothing does `within` so many seconds, or
        when the limit of work is reached.
        """
        while self.waiting and self.waiting[0].seconds <= within and not self.bounds.work.is_over:
            entry = heappop(self.waiting)
            if entry.kind != EXACT:
                self._give_way(entry)
                continue
            found = self._fitting(entry.job)
            self._divide(entry)
            if found:
                return found
        return None

    def _give_way(self, entry: Waiting) -> None:
        """To what is known more closely, or to what it leaves open; to nothing where that cannot fit."""
        if entry.kind == ALIKE:
            self._part(entry)
        elif entry.kind < BOUND:
            if entry.kind == COMPUTING or self._may_fit(entry):
                least = self._least(entry.job, entry.branch, entry.open, traced=entry.kind == ROUGH)
                self.push(max(entry.seconds, least), entry.kind + 1, *entry[-3:])
        elif entry.kind == BOUND and entry.open[:1] == (REDUCE,) and gathers(entry.job):
            self._gather(entry)
        elif entry.kind == GATHERED:
            if self.bounds.may_gather(entry.job.at(**entry.branch.leanest(entry.open))):
                self._settle(entry)
        elif set(entry.open) <= timeless(entry.job.strategy):
            self._time(entry)
        else:
            self._settle(entry)

    def _least(self, job: Job, branch: Branch, still_open: tuple[str, ...], *, traced: bool = True) -> float:
        loosest = (job.at(**chosen) for chosen in branch.loosest_ones(still_open))
        bucketed = REDUCE not in still_open
        return min(self.bounds.seconds(one, traced=traced, bucketed=bucketed) for one in loosest)

    def _may_fit(self, entry: Waiting) -> bool:
        return self.bounds.may_fit(entry.job.at(**entry.branch.leanest(entry.open)))

    def _settle(self, entry: Waiting) -> None:
        """The next number takes each of its values; of those that change no byte the usual: none is faster."""
        name, *rest = entry.open
        job, branch = entry.job, entry.branch
        values = branch.numbers[name]
        for value in values[:1] if name in BYTELESS[job.strategy.stage] else values:
            settled = job.at(**{name: value})
            if entry.kind == GATHERED:
                least = self.bounds.among(settled, job.at(**branch.loosest(entry.open)))
            else:
                least = self._least(settled, branch, tuple(rest))
            self.push(max(entry.seconds, least), BOUND, settled, branch, tuple(rest))

    def _gather(self, entry: Waiting) -> None:
        """All that decides what is gathered is settled. What gathers with more buffers (NVMe) is timed with them."""
        lean, loose = (entry.job.at(**chosen(entry.open)) for chosen in (entry.branch.leanest, entry.branch.loosest))
        if not (self.bounds.may_keep(lean) and self._may_reduce(entry)):
            return
        try:
            found = micro_steps(entry.job)
        except ContradictionError:
            self._settle(entry)
            return
        if self._is_simplest(entry, found):
            self.push(max(entry.seconds, self.bounds.with_gathers(loose, lean)), GATHERED, *entry[-3:])

    def _may_reduce(self, entry: Waiting) -> bool:
        """With any of its buckets, asked once for all that only gathers differently."""
        like = entry.job.at(**UNSAID).strategy
        if like not in self.reduces:
            numbers = entry.branch.combinations(*entry.open)
            jobs = (entry.job.at(**{**entry.branch.leanest(()), **chosen}) for chosen in numbers)
            self.reduces[like] = any(self.bounds.may_reduce_bare(job) for job in jobs)
        return self.reduces[like]

    def _is_simplest(self, entry: Waiting, found: MicroSteps) -> bool:
        """Of the strategies that gather alike, so far; a simpler one fits as well and is as fast."""
        like = entry.job.at(**UNSAID).strategy, id(found)
        simplest, _found = self.gathered.get(like, (entry.simplicity, found))
        self.gathered[like] = min(simplest, entry.simplicity), found
        return entry.simplicity <= simplest

    def _time(self, entry: Waiting) -> None:
        """What cannot hold its gradients, and what DeepSpeed stops at (too few buffers for NVMe), is left out."""
        branch, sub_group = entry.branch, entry.branch.leanest(())
        jobs = [entry.job.at(**chosen) for chosen in branch.combinations(*entry.open)]
        jobs = [job for job in jobs if self.bounds.may_reduce(job.at(**sub_group))]
        if not jobs:
            return
        self.timed += 1
        try:
            seconds = self.bounds.timed(entry.job)
        except ContradictionError:
            return
        for job in jobs:
            self.push(seconds, EXACT, job, branch)

    def _divide(self, entry: Waiting) -> None:
        """Smaller sub-groups wait from now on, unless more than the update's bytes are in the way of larger ones."""
        job, smaller = entry.job, entry.branch.smaller_sub_group(entry.job)
        if smaller is None or not self.bounds.may_fit(job.at(**entry.branch.leanest(()))):
            return
        if counted := self.bounds.counted.get(job.strategy):
            beside = (total(moment.lines) for moment in counted.ledger.gpu.moments if moment.phase != "step")
            if not self.bounds.has_room(job, max(beside)):
                return
        self.push(self.bounds.timed(smaller), EXACT, smaller, entry.branch)

    def _fitting(self, job: Job) -> Candidate | None:
        return self.bounds.counts(job)

    @property
    def bound(self) -> float | None:
        """Seconds that whatever waits takes at least; None where nothing does."""
        return self.waiting[0].seconds if self.waiting else None

    def unfinished(self) -> Iterator[Start]:
        """What waits, the fewest seconds first, as far as its numbers are settled, else with the usual ones."""
        for entry in sorted(self.waiting):
            if entry.kind != ALIKE:
                yield Start(entry.seconds, entry.job, entry.branch, entry.open)
                continue
            for branch, size in self.alike[entry.turn]:
                yield Start(entry.seconds, self._usual(branch, size), branch, branch.open)


def fastest(
    space: Space, reserve: float | None, *, bounds: Bounds | None = None, roots: Iterable[Root] | None = None,
    work: Work | None = None,
) -> Found:  # fmt: skip
    """The fastest strategy of a space that fits, keeping `reserve` of each card free.

    `bounds`: of the same space and reserve, as another search left them. `roots`: where to look; None: everywhere.
    `work`: what the search may do; None: as much as any.
    """
    search = Search(space, bounds or Bounds(reserve, work))
    search.start(space.roots() if roots is None else roots)
    best = search.next()
    bound = search.bound if search.bounds.work.is_over and best is None else None
    if bound is not None:
        best = fastest_of(search.unfinished(), space, search.bounds)
        if best and best.time.total * (1 - ROUNDED) <= bound:
            bound = None
    return Found(best, space.size, search.timed, len(search.bounds.counted), bound)
