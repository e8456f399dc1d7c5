"""The strategy that needs fewest bytes of a GPU, found by bounds: what could need least is looked at first.

A choice waits under the bytes that it needs at least. When it comes up, it gives way to what it leaves open, each under
its own bytes, and what leaves nothing open is counted; once the fewest that were counted are no more than what waits
needs at least, no other needs less. Of those that need as few, the search for the fastest then takes one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import count, pairwise

from zeroplan.costs.deepspeed.fetch import MicroSteps, micro_steps
from zeroplan.costs.ledger import uncollected, whole_gradients
from zeroplan.costs.outside import outside
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.record import NamedTuple
from zeroplan.search.best_first import Found, fastest
from zeroplan.search.bounds import Bounds
from zeroplan.search.candidate import Candidate
from zeroplan.search.neighbours import leanest_of_each
from zeroplan.search.numbers import PERSISTENCE
from zeroplan.search.room import UNSAID
from zeroplan.search.space import BYTELESS, Root, Space
from zeroplan.search.work import COMPLETING, Work
from zeroplan.specs.job import Job
from zeroplan.specs.model import MIN_IDENTICAL_BATCH
from zeroplan.specs.strategy import STAGES

HELD, PASSES, GATHERED = range(3)
"""What a waiting entry's bytes are: without activations, with them, and with what stage 3's coordinator gathers."""


class Waiting(NamedTuple):
    """What a heap has on top: the fewest bytes, then what is counted soonest."""

    bytes: int
    """Of a GPU, what a process takes beside PyTorch's allocator among them."""
    still_open: int
    turn: int
    kind: int
    job: Job
    """Its open numbers have the values that hold least."""
    branch: int
    """By its place in the space."""
    open: tuple[str, ...]


class Search:
    """Entries that wait, the one with the fewest bytes first."""

    def __init__(self, space: Space, bounds: Bounds) -> None:
        self.space, self.bounds = space, bounds
        self.waiting: list[Waiting] = []
        self.turn = count()
        self.larger = dict(pairwise(sorted(space.sizes)))
        self.looked_at: set[tuple[int, int]] = set()
        """Branches and micro-batches."""
        self.gathered: dict[Hashable, MicroSteps] = {}
        """Of strategies that were counted, whatever their thresholds."""
        self.best: Candidate | None = None
        """The leanest that was counted and fits."""

    def run(self) -> int | None:
        """The fewest bytes that a strategy needs which fits; None: none fits.

        After the limit of work the fewest so far; see `bound`.
        """
        for branch in range(len(self.space.branches)):
            self._root(branch, min(self.space.sizes), 0)
        while self._goes_on and not self.bounds.work.is_over:
            entry = heappop(self.waiting)
            if entry.kind == HELD:
                self._passes(entry)
            elif entry.kind == PASSES:
                self._gather(entry)
            elif entry.open:
                self._settle(entry)
            elif not self._is_new(entry.job):
                continue
            else:
                self._count(entry.job)
        if self._goes_on:
            self._complete()
        return self.fewest

    @property
    def fewest(self) -> int | None:
        """Bytes of a GPU that the best so far needs."""
        return self.best.fit.gpu.needed if self.best else None

    @property
    def bound(self) -> int | None:
        """Bytes that whatever waits needs at least; None where nothing that waits could need less than the best."""
        return self.waiting[0].bytes if self._goes_on else None

    @property
    def _goes_on(self) -> bool:
        return bool(self.waiting) and (self.best is None or self.waiting[0].bytes < self.best.fit.gpu.needed)

    def _count(self, job: Job) -> None:
        found = self.bounds.fitting(job)
        if found and (self.best is None or found.fit.gpu.needed < self.best.fit.gpu.needed):
            self.best = found

    def _complete(self) -> None:
        """Count what waits with the leanest numbers, the fewest bytes first, and the leanest of each stage."""
        self.bounds.work.extend(COMPLETING)
        for _branch, job in leanest_of_each(self.space):
            self._count(job)
        for entry in sorted(self.waiting):
            if self.bounds.work.is_over or (self.best and entry.bytes >= self.best.fit.gpu.needed):
                return
            self._count(entry.job)

    def roots(self, needed: int) -> Iterator[Root]:
        """Where strategies may be that need no more than so many bytes, the fewest that any needs."""
        found = set(self.looked_at)
        for entry in self.waiting:
            if entry.bytes <= needed:
                size = entry.job.strategy.micro_batch
                found.update((entry.branch, each) for each in self.space.sizes if each >= size)
        return ((self.space.branches[branch], size) for branch, size in sorted(found))

    def _is_new(self, job: Job) -> bool:
        """Whether nothing that was counted gathers the same and is the same but for its thresholds."""
        if job.strategy.stage < STAGES[-1]:
            return True
        try:
            found = micro_steps(job)
        except ContradictionError:
            return True
        like = job.at(**UNSAID).strategy, id(found)
        known = like in self.gathered
        self.gathered[like] = found
        return not known

    def _root(self, branch: int, size: int, least: int) -> None:
        """A branch with a micro-batch, which needs at least so many bytes.

        Where the host lacks room for it the next waits: all sequences at once add up no gradients there.
        """
        chosen = self.space.branches[branch]
        job = self.space.sized(chosen, size).at(**chosen.leanest(chosen.numbers))
        held, in_host = self.bounds.outside_passes(job)
        if in_host:
            still_open = tuple(name for name in chosen.open if name not in BYTELESS[job.strategy.stage])
            self._push(max(least, held), HELD, job, branch, still_open)
        elif size in self.larger:
            self._root(branch, self.larger[size], 0)

    def _push(self, peak: int, kind: int, job: Job, branch: int, still_open: tuple[str, ...]) -> None:
        if self.bounds.has_room(job, peak):
            needed = peak + total(outside(job))
            heappush(self.waiting, Waiting(needed, len(still_open), next(self.turn), kind, job, branch, still_open))

    def _passes(self, entry: Waiting) -> None:
        """The next larger micro-batch waits from now on: it needs no less where only activations grow with it."""
        job, size = entry.job, entry.job.strategy.micro_batch
        self.looked_at.add((entry.branch, size))
        peak = self.bounds.peak(job)
        if larger := self.larger.get(size):
            grows = size >= MIN_IDENTICAL_BATCH and self.bounds.activations_of(job) and not whole_gradients(job)
            self._root(entry.branch, larger, peak if grows else 0)
        self._push(peak, PASSES, *entry[-3:])

    def _gather(self, entry: Waiting) -> None:
        """What gathers with more buffers alone (NVMe) is counted with them.

        Open thresholds bound nothing: what is kept for reuse is not unpacked again beside its buffer.
        """
        least = self.bounds.peak(entry.job)
        if not {*UNSAID, PERSISTENCE} & set(entry.open):
            least = max(least, self.bounds.gathering(entry.job))
        self._push(least, GATHERED, *entry[-3:])

    def _settle(self, entry: Waiting) -> None:
        """The next number takes each of its values."""
        name, *rest = entry.open
        for value in self.space.branches[entry.branch].numbers[name]:
            job = entry.job.at(**{name: value})
            if self.bounds.may_fit(job):
                self._push(self.bounds.peak(job), PASSES, job, entry.branch, tuple(rest))


def least_memory(space: Space, reserve: float | None, *, work: Work | None = None) -> Found:
    """The strategy of a space that fits and needs fewest bytes of a GPU; of several the fastest, then the simplest.

    `work`: what may be done by the search for the fewest bytes, and then again by that for the fastest.
    """
    bounds = Bounds(reserve, work)
    search = Search(space, bounds)
    with uncollected():
        bounds.most = search.run()
        if search.best is None:
            return Found(None, space.size, 0, len(bounds.counted), search.bound)
        bounds.work.extend(1.0)
        found = fastest(space, reserve, bounds=bounds, roots=search.roots(search.best.fit.gpu.needed))
        bytes_at_least = search.bound
        if bytes_at_least is None and not found.proven:
            bytes_at_least = search.best.fit.gpu.needed
        return found._replace(best=found.best or search.best, bound=bytes_at_least)
