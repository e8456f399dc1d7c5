"""The best strategy of a space: each configuration that may win is counted and timed, and the best ones are refined.

Configurations come in the order of a lower bound of what is minimised, which is known more and more closely: seconds of
the operators, of the passes with what runs again, and of a step with the fastest numbers, whether they fit or not; or
bytes of the GPU that are held, and those of activations or of gathered parameters beside them. Those that have no room
for so much are left out, and once the bound is above the best nothing else can win. The others are evaluated exactly
with a few numbers each, and the numbers of the best ones are changed as long as that helps (coordinate descent on a
coarse grid).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from typing import Any, NamedTuple

from zeroplan.costs.ledger import resident
from zeroplan.costs.outside import outside
from zeroplan.costs.timing.computing import computing, layers_again
from zeroplan.costs.timing.step import software_of
from zeroplan.ledger import total
from zeroplan.search.candidate import Candidate, Evaluator, rounded
from zeroplan.search.room import fits_by_bound, has_room, least_needed, those_with_room
from zeroplan.search.space import Configuration, Space
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY
from zeroplan.specs.strategy import Offload

REFINED = 3
"""The best configurations, whose numbers are refined."""
NEAR = 1.05
"""Of the best's seconds, up to which others are looked at closer: refined, they may overtake it."""
TRIED = 8
"""Changes of one number, the fastest first, that are counted."""
MADE_SMALLER = 3
"""Values that are tried of a number that makes room for another."""
GAIN = 0.001
"""Share of a step below which no change is made for its sake: the clock is not known that well."""
HARDLY_FASTER = 1 - 2 * GAIN
"""Share of a step that it may take at least with more layers that run again, beside which more traffic hides."""


MANY_FAILED = 4
"""Configurations that do not fit, after which the next are not taken to."""


class SearchSummary(NamedTuple):
    """What a search came to."""

    best: Candidate | None
    strategies: int = 0
    """The space's; its configurations, those without room for what they hold and their activations, and those counted
    and timed."""
    configurations: int = 0
    without_room: int = 0
    evaluated: int = 0


class Contender(NamedTuple):
    """A candidate and where it comes from."""

    candidate: Candidate
    configuration: Configuration

    @property
    def seconds(self) -> float:
        return rounded(self.candidate.time.total)


class Search:
    """Search one space for one objective."""

    def __init__(self, space: Space, reserve: float | None, objective: str, below: float = inf) -> None:
        self.space, self.objective, self.evaluator, self.below = space, objective, Evaluator(reserve), below
        self.timed, self.fitting = self.evaluator.timed, self.evaluator.fitting
        self.computing: dict[Any, float] = {}
        """Seconds of the passes alone, by what decides them."""
        self.without_room = 0
        self.limit = below
        """What is minimised of which nothing above is worth looking at."""
        self.failed = 0
        """Configurations that came up and do not fit, before any that does."""

    def run(self) -> Contender | None:
        """The best of all; None where nothing fits."""
        entries: list[tuple[Contender, float]] = []
        best: Contender | None = None
        for least, configuration in self._by_bound():
            if entry := self._first(configuration, best, least):
                entries.append((entry, least))
                best = min(best or entry, entry, key=self.order)
                self.limit = min(self.below, self._limit(best))
            self.failed = self.failed + 1 if best is None else 0
        if best is None:
            return None
        best = self._best_refined(best, entries)
        return self._simplest(self._refined(self._leaner(best)) if self.objective == LEAST_MEMORY else best)

    def finds_any(self) -> bool:
        """Whether any configuration fits with the numbers that need least, and of each family with most layers that
        run again.
        """
        leanest = sorted((family[0] for family in self.families()), key=self._held)
        return any(self._has_room(one) and self._lean(one) for one in leanest)

    def _best_refined(self, first: Contender, entries: list[tuple[Contender, float]]) -> Contender:
        """The best once the numbers of a few are refined: the first's, then those of what has the lowest bounds."""
        near = [(entry, least) for entry, least in entries if entry is not first and self._may_overtake(entry, first)]
        best = self._descended(first) if first.seconds < NEAR * self.below else first
        for entry, least in near[: REFINED - 1]:
            if self._may_overtake(entry, best) and least <= self._limit(best):
                best = min(best, self._descended(entry), key=self.order)
        return self._refined(best) if best.seconds < NEAR * self.below else best

    def _may_overtake(self, entry: Contender, best: Contender) -> bool:
        """Whether it may be better than the best once its numbers are refined."""
        if self.objective == LEAST_MEMORY:
            return entry.candidate.fit.gpu.needed <= best.candidate.fit.gpu.needed
        return entry.seconds < NEAR * min(best.seconds, self.below)

    def _by_bound(self) -> Iterator[tuple[float, Configuration]]:
        """Configurations that have room, in the order of what is minimised, with the numbers that are best for it.

        None above `limit`. What is minimised is known more and more closely as a configuration comes up. The same with
        more layers that run again is hardly faster, and comes up afterwards.
        """
        lean = self.objective == LEAST_MEMORY
        closer = (self._held, self._leanest_bytes) if lean else (self.operators, self.passes, self._fastest_step)
        turn = count()
        waiting: list[tuple[float, tuple[Any, ...], int, int, list[Configuration]]] = []
        crowded: set[int] = set()
        """Families, by identity, of which one that came up has no room."""

        def wait_for_last(family: list[Configuration], bound: float) -> None:
            if family:
                heappush(waiting, (bound, family[-1].tie_break(family[-1].at()), next(turn), 0, family))

        for family in [[one] for one in self.space.configurations()] if lean else self.families():
            wait_for_last(family, 0.0)
        while waiting:
            bound, simplest, _turn, level, family = heappop(waiting)
            if bound > self.limit:
                return
            if level == len(closer) - 1 and id(family) in crowded:
                crowded.discard(id(family))
                wait_for_last(self._with_room(family), bound)
                continue
            if level < len(closer) and (closest := closer[level](family[-1])) is not None:
                heappush(waiting, (max(bound, closest), simplest, next(turn), level + 1, family))
                continue
            configuration = family.pop()
            if level == len(closer):
                yield bound, configuration
            else:
                crowded.add(id(family))
            wait_for_last(family, HARDLY_FASTER * bound)

    def families(self) -> list[list[Configuration]]:
        """Configurations that differ in how many layers run again, from those that run most."""
        families: dict[Hashable, list[Configuration]] = {}
        for configuration in self.space.configurations():
            families.setdefault(configuration.family, []).append(configuration)
        for family in families.values():
            family.sort(key=lambda one: -layers_again(one.at()))
        return list(families.values())

    @property
    def is_crowded(self) -> bool:
        """Whether the card seems too small: what comes next is counted before it is timed."""
        return self.failed >= MANY_FAILED

    def _limit(self, best: Contender) -> float:
        """What is worth looking at: bytes are exact, seconds are not known to the last."""
        return self.order(best)[0] if self.objective == LEAST_MEMORY else (1 - GAIN) * best.seconds

    def operators(self, configuration: Configuration) -> float:
        """Seconds of forward's operators and backward's, without what checkpointing runs again."""
        return self._computing(configuration, traced=False)

    def passes(self, configuration: Configuration) -> float:
        """Seconds of the passes, without traffic, offload and update."""
        return self._computing(configuration, traced=True)

    def _computing(self, configuration: Configuration, *, traced: bool) -> float:
        key = (*configuration.computes, traced)
        if key not in self.computing:
            job = configuration.at()
            alone = computing(job, software_of(job), traced=traced)
            self.computing[key] = job.strategy.micro_steps * (alone.forward.seconds + alone.backward.seconds)
        return self.computing[key]

    def _fastest_step(self, configuration: Configuration) -> float | None:
        """Seconds of a step with the fastest numbers; None where there is no room for the leanest."""
        if not self._has_room(configuration) or (self.is_crowded and not self._lean(configuration)):
            return None
        return min(map(self.timed, self._fast(configuration)))

    def _fast(self, configuration: Configuration) -> Iterator[Job]:
        return configuration.fast(partial(fits_by_bound, reserve=self.evaluator.reserve))

    def _held(self, configuration: Configuration) -> float:
        """Bytes that a GPU holds between steps, and what a process takes beside PyTorch's allocator."""
        job = configuration.minimum_memory
        return total(resident(job)) + total(outside(job))

    def _leanest_bytes(self, configuration: Configuration) -> float | None:
        """Bytes that a GPU needs at least, with the model's own activations or gathered parameters; None where there is
        no room for them.
        """
        return least_needed(configuration.minimum_memory) if self._has_room(configuration) else None

    def _has_room(self, configuration: Configuration) -> bool:
        there = has_room(configuration, self.evaluator.reserve)
        self.without_room += not there
        return there

    def _with_room(self, family: list[Configuration]) -> list[Configuration]:
        there = those_with_room(family, self.evaluator.reserve)
        self.without_room += len(family) - len(there)
        return there

    def order(self, entry: Contender) -> tuple[Any, ...]:
        """By what is minimised; of equals the other, and then the simplest, comes first."""
        needed, seconds = entry.candidate.fit.gpu.needed, entry.seconds
        minimised = (needed, seconds) if self.objective == LEAST_MEMORY else (seconds,)
        return (*minimised, *entry.configuration.tie_break(entry.candidate.job))

    def _first(self, configuration: Configuration, best: Contender | None, least: float) -> Contender | None:
        """Where its numbers may be refined from: the fastest that fits of a few that come near the best; else None.

        `least`: what it takes with the fastest numbers; no more are tried once it takes hardly longer.
        """
        if self.objective == LEAST_MEMORY:
            return self._leanest(configuration)
        if self.failed and not self._lean(configuration):
            return None
        if one := self.fitting(min(self._fast(configuration), key=self.timed)):
            return Contender(one, configuration)
        entry = self._lean(configuration) if best is None else None
        if best is None and entry is None:
            return None
        near = NEAR * min(self.below, best.seconds if best else inf)
        for jobs, monotone in self._starts(configuration, near):
            if entry and self._limit(entry) <= least:
                break
            limit = min(near, entry.seconds if entry else inf)
            if one := self._fastest_fitting(jobs, limit, monotone=monotone, is_first=best is None):
                entry = Contender(one, configuration)
        return entry

    def _starts(self, configuration: Configuration, limit: float) -> Iterator[tuple[list[Job], bool]]:
        """Rows from which refining its numbers may begin, and whether each of a row needs no more than the one before.

        Not those of which what needs least below that limit does not fit.
        """
        for rows, monotone in configuration.starts():
            if not monotone or self._any_may_fit(rows, limit):
                yield from ((jobs, monotone) for jobs in rows)

    def _any_may_fit(self, rows: list[list[Job]], limit: float) -> bool:
        """Whether any below that limit may fit, where each needs no more than those before it and above."""
        first, last = rows[0], rows[-1]
        if not self.evaluator.has_room(last[-1]):  # which takes no seconds
            return False
        leanest = self._leanest_below(first, limit)
        return leanest is not None and self.evaluator.may_fit(last[leanest])

    def _leanest_below(self, jobs: list[Job], limit: float) -> int | None:
        """The place of the last that is faster than that limit."""
        return next((at for at in reversed(range(len(jobs))) if self.timed(jobs[at]) < limit), None)

    def _lean(self, configuration: Configuration) -> Contender | None:
        """The first that fits of what may need least."""
        one = next(self.evaluator.lean_fitting(configuration), None)
        return Contender(one, configuration) if one else None

    def _leanest(self, configuration: Configuration) -> Contender | None:
        """What needs least of those that fit."""
        fitting = [*self.evaluator.lean_fitting(configuration)]
        least = min((one.fit.gpu.needed for one in fitting), default=0)
        equals = [Contender(one, configuration) for one in fitting if one.fit.gpu.needed == least]
        return min(equals, key=self.order, default=None)

    def _fastest_fitting(
        self, jobs: list[Job], limit: float, *, monotone: bool, is_first: bool
    ) -> Candidate | None:  # fmt: skip
        """The fastest below that limit that fits; `monotone`: the first, for each needs no more than the one before.

        `is_first`: of the first configuration that fits, whose fastest numbers often do too.
        """
        if not monotone:
            near = [job for job in jobs if self.timed(job) < limit]
            return next(filter(None, map(self.fitting, sorted(near, key=self.timed))), None)
        if is_first and self.timed(jobs[0]) < limit and (one := self.fitting(jobs[0])):
            return one
        leanest = self._leanest_below(jobs, limit)
        if leanest is None or not self.fitting(jobs[leanest]):
            return None
        first = bisect_left(jobs, True, hi=leanest, key=lambda job: self.fitting(job) is not None)
        return self.fitting(next(job for job in jobs[first:] if self.timed(job) < limit))

    def _refined(self, entry: Contender) -> Contender:
        """With each number changed in turn, and two at once to make room, while that helps and fits."""
        before: Contender | None = None
        while entry is not before:
            before = entry = self._descended(entry)
            for name in entry.configuration.engine.gains_by_room:
                entry = self._first_better(entry, sorted(self._with_room_made(entry, name), key=self.timed))
        return entry

    def _descended(self, entry: Contender) -> Contender:
        """With each number changed in turn while that helps and fits."""
        before: Contender | None = None
        while entry is not before:
            before = entry
            for name in entry.configuration.variant.numbers:
                entry = self._first_better(entry, self._fastest_first(entry, name))
        return entry

    def _fastest_first(self, entry: Contender, name: str) -> Iterable[Job]:
        """With one number changed; of those of which a larger one is no slower the larger ones, timed as they come."""
        job, values = entry.candidate.job, entry.configuration.variant.numbers[name]
        if name not in entry.configuration.engine.larger_is_faster:
            return sorted((job.at(**{name: value}) for value in values), key=self.timed)
        larger = [value for value in values if value > getattr(job.strategy, name)]
        return (job.at(**{name: value}) for value in sorted(larger, reverse=True))

    def _leaner(self, entry: Contender) -> Contender:
        """With each number changed in turn to what needs least."""
        for name, values in entry.configuration.variant.numbers.items():
            each = filter(None, [self.fitting(entry.candidate.job.at(**{name: value})) for value in values])
            entry = min([entry, *(Contender(one, entry.configuration) for one in each)], key=self.order)
        return entry

    def _first_better(self, entry: Contender, jobs: Iterable[Job]) -> Contender:
        """The first of these jobs that fits, which come fastest first, where it is faster by more than the clock can
        tell; where memory is minimised, of those that need no more.
        """
        most = entry.candidate.fit.gpu.needed if self.objective == LEAST_MEMORY else inf
        for job in islice(jobs, TRIED):
            if self._is_no_gain(entry, job):
                break
            if (candidate := self.fitting(job)) and candidate.fit.gpu.needed <= most:
                return Contender(candidate, entry.configuration)
        return entry

    def _is_no_gain(self, entry: Contender, job: Job) -> bool:
        """Whether it is not faster by more than the clock can tell."""
        return self.timed(job) > (1 - GAIN) * entry.seconds

    def _with_room_made(self, entry: Contender, name: str) -> Iterator[Job]:
        """With a number one step larger, for which there is no room alone, and another smaller."""
        numbers, strategy = entry.configuration.variant.numbers, entry.candidate.strategy
        larger = _next(numbers.get(name, ()), getattr(strategy, name))
        if larger is None:
            return
        raised = entry.candidate.job.at(**{name: larger})
        if self._is_no_gain(entry, raised):
            return
        for other in entry.configuration.engine.makes_room:
            values = numbers.get(other, ()) if other != name else ()
            smaller = sorted((one for one in values if one < getattr(strategy, other)), reverse=True)
            for less in smaller[:: -(-len(smaller) // MADE_SMALLER) or 1]:
                yield (job := raised.at(**{other: less}))
                if other in entry.configuration.engine.larger_is_faster and self._is_no_gain(entry, job):
                    break

    def _simplest(self, entry: Contender) -> Contender:
        """With each number at its default where that is as good, as far as the clock can tell."""
        limit = entry.seconds if self.objective == LEAST_MEMORY else (1 + GAIN) * entry.seconds
        for name, (default, *_others) in entry.configuration.variant.numbers.items():
            job = entry.candidate.job.at(**{name: default})
            if self.timed(job) <= limit and (candidate := self.fitting(job)):
                other = Contender(candidate, entry.configuration)
                entry = min(entry, other, key=self.order) if self.objective == LEAST_MEMORY else other
        return entry


def _next(values: tuple[Any, ...], now: Any) -> Any:
    """The next larger size, or the next smaller share of the optimizer on the host; None behind the last."""
    if isinstance(now, Offload):
        return next(iter(values[values.index(now) + 1 :]), None) if now in values else None
    return min((one for one in values if one > now), default=None)


def best(space: Space, reserve: float | None, objective: str = FASTEST, below: float = inf) -> SearchSummary:
    """The fastest strategy of a space that fits, keeping `reserve` of each card free, or the one that needs least.

    `below`: seconds of a step above which none is of use: nothing slower is looked for, though one may be returned.
    """
    search = Search(space, reserve, objective, below)
    entry = search.run()
    configurations, evaluated = len(space.variants) * len(space.sizes), len(search.evaluator.candidates)
    return SearchSummary(entry.candidate if entry else None, space.size, configurations, search.without_room, evaluated)


def fits_any(space: Space, reserve: float | None) -> bool:
    """Whether any strategy of a space fits, those first that may need least."""
    return Search(space, reserve, LEAST_MEMORY).finds_any()
