"""A plan for a search that was stopped: what waits is completed, and the fastest that fits is refined.

What could be fastest is completed first, one strategy of each choice; then each number of the best is changed as long
as that is faster (coordinate descent), on a coarse grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zeroplan.errors import ContradictionError
from zeroplan.record import NamedTuple
from zeroplan.search.bounds import Bounds
from zeroplan.search.candidate import Candidate
from zeroplan.search.neighbours import leanest_of_each, with_choice
from zeroplan.search.space import Branch, Space, simplicity
from zeroplan.search.work import COMPLETING
from zeroplan.specs.job import Job

MOST_VALUES = 8
"""Of a number that are tried."""
REFINING = 0.5
"""Share of what may still be done that is kept for the numbers of the best."""


class Start(NamedTuple):
    """Where a search stopped: one of its entries."""

    seconds: float
    """It takes at least."""
    job: Job
    branch: Branch
    open: tuple[str, ...]
    """Numbers that are not settled."""


class Incumbent(NamedTuple):
    """The best so far, and where it comes from."""

    candidate: Candidate
    branch: Branch

    @property
    def seconds(self) -> float:
        """To the digits that a search compares."""
        return float(f"{self.candidate.time.total:.12g}")

    @property
    def order(self) -> tuple[Any, ...]:
        """Of equally fast ones the simplest comes first."""
        return (self.seconds, *simplicity(self.candidate.job, self.branch))


def fastest_of(starts: Iterable[Start], space: Space, bounds: Bounds) -> Candidate | None:
    """The fastest that some work more comes to; None where none of what was looked at fits."""
    bounds.work.extend(COMPLETING * (1 - REFINING))
    best = _completed(starts, bounds) or _leanest(space, bounds)
    bounds.work.extend(COMPLETING * REFINING)
    return _refined(best, space, bounds).candidate if best else None


def _completed(starts: Iterable[Start], bounds: Bounds) -> Incumbent | None:
    """The fastest of the first of each choice, with usual numbers or else with the leanest."""
    best: Incumbent | None = None
    for start in _one_of_each(starts):
        if bounds.work.is_over or (best and start.seconds > best.seconds):
            break
        for job in (start.job, start.job.at(**start.branch.leanest(start.branch.open))):
            if candidate := bounds.counts(job):
                best = _faster(best, Incumbent(candidate, start.branch))
                break
    return best


def _one_of_each(starts: Iterable[Start]) -> Iterator[Start]:
    """The first of each branch and micro-batch."""
    seen: set[tuple[Any, ...]] = set()
    for start in starts:
        key = (start.job.strategy.micro_batch, *start.branch.choice.values())
        if key not in seen:
            seen.add(key)
            yield start


def _leanest(space: Space, bounds: Bounds) -> Incumbent | None:
    """The fastest of the strategies that need least."""
    best: Incumbent | None = None
    for branch, job in leanest_of_each(space):
        if candidate := bounds.fitting(job):
            best = _faster(best, Incumbent(candidate, branch))
    return best


def _faster(best: Incumbent | None, other: Incumbent) -> Incumbent:
    return other if best is None or other.order < best.order else best


def _refined(best: Incumbent, space: Space, bounds: Bounds) -> Incumbent:
    """With each choice and each number changed in turn while that is faster, or as fast and simpler, and fits."""
    before: Incumbent | None = None
    while best is not before:
        before = best
        for name, values in best.branch.numbers.items():
            for value in _spread(values):
                best = _changed(best, best.candidate.job.at(**{name: value}), best.branch, bounds)
        for branch in space.branches:
            best = _changed(best, with_choice(branch, best.candidate.job), branch, bounds)
    return best


def _changed(best: Incumbent, job: Job, branch: Branch, bounds: Bounds) -> Incumbent:
    """The job where it is better and fits, else what was best before, as where there is no work left."""
    if bounds.work.is_over or job.strategy == best.candidate.strategy:
        return best
    try:
        if bounds.timed(job) > best.seconds:
            return best
    except ContradictionError:  # too few buffers for NVMe
        return best
    candidate = bounds.counts(job)
    return _faster(best, Incumbent(candidate, branch)) if candidate else best


def _spread(values: Sequence[Any]) -> Sequence[Any]:
    """Some of them, evenly spread."""
    return values[:: -(-len(values) // MOST_VALUES)]
