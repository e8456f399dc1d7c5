"""Numbers of one strategy changed as long as that helps: coordinate descent on a coarse grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from typing import Any, NamedTuple

from zeroplan.search.candidate import Candidate, Evaluator, rounded
from zeroplan.search.space import Configuration
from zeroplan.specs.job import Job
from zeroplan.specs.objective import LEAST_MEMORY
from zeroplan.specs.strategy import Offload

TRIED = 8
"""Changes of one number, the fastest first, that are counted."""
MADE_SMALLER = 3
"""Values that are tried of a number that makes room for another."""
GAIN = 0.001
"""Share of a step below which no change is made for its sake: the clock is not known that well."""


class Contender(NamedTuple):
    """A candidate and where it comes from."""

    candidate: Candidate
    configuration: Configuration

    @property
    def seconds(self) -> float:
        return rounded(self.candidate.time.total)


class Refinement:
    """Changes of numbers for one objective."""

    def __init__(self, evaluator: Evaluator, objective: str) -> None:
        self.objective = objective
        self.timed, self.fitting = evaluator.timed, evaluator.fitting

    def order(self, entry: Contender) -> tuple[Any, ...]:
        """By what is minimised; of equals the other, and then the simplest, comes first."""
        needed, seconds = entry.candidate.fit.gpu.needed, entry.seconds
        minimised = (needed, seconds) if self.objective == LEAST_MEMORY else (seconds,)
        return (*minimised, *entry.configuration.tie_break(entry.candidate.job))

    def refined(self, entry: Contender) -> Contender:
        """With each number changed in turn, and two at once to make room, while that helps and fits."""
        before: Contender | None = None
        while entry is not before:
            before = entry = self.descended(entry)
            for name in entry.configuration.engine.gains_by_room:
                entry = self._first_better(entry, sorted(self._with_room_made(entry, name), key=self.timed))
        return entry

    def descended(self, entry: Contender) -> Contender:
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

    def leaner(self, entry: Contender) -> Contender:
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

    def simplest(self, entry: Contender) -> Contender:
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
