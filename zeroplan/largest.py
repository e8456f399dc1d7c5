"""The largest model that fits: sizes of three digits, about one per cent apart, halved between one that fits and one
that does not.

What fits at a size is taken to fit at smaller ones, stage by stage; a model's shape changes in steps, so a single size
between two may be otherwise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from zeroplan.plan import leanest, leanest_fitting, leanest_has_room, plan, sequences_per_gpu
from zeroplan.search import Candidate, space
from zeroplan.sizing import Lack, lack
from zeroplan.specs.job import Job

LARGEST = 10**13
"""Parameters up to which a shape is inferred; from 10^6 on."""
BYTES_EACH = 18
"""Bytes of a parameter in mixed precision with Adam and fp32 gradients: only where the search begins."""
STEP = 64
"""Sizes between the first two looks on the way to the first that does not fit: half as many parameters more, about."""
SIZES_KEPT = 4
"""Models of the sizes looked at last: each keeps its tree and what it was run for."""
CHOICE = ("stage", "offload_optimizer", "offload_param")


class Largest(NamedTuple):
    parameters: int
    candidate: Candidate
    """The fastest strategy at that size."""
    next_size: int | None
    """The next larger size, which does not fit; None at the end of the sizes."""
    lack: Lack | None
    """What it lacks."""


def sizes() -> list[int]:
    """Parameter counts from 1M to 10T: steps of 1 up to 200, of 2 up to 500 and of 5 from there, of three digits."""
    digits = [*range(100, 200), *range(200, 500, 2), *range(500, 1000, 5)]
    numbers = [digit * 10**power for power in range(4, 11) for digit in digits]
    return [*numbers, LARGEST]


def largest(
    sized: Callable[[int], Job], fixed: dict[str, Any], reserve: float | None, *, before: Largest | None = None
) -> Largest | None:
    """The largest size of which some strategy fits, by what each stage and offload needs least. None: none does.

    `before`: the largest with less that is left free; without it those sizes come first whose states all the memory
    there is would hold.
    """
    grid = sizes()
    job = lru_cache(SIZES_KEPT)(lambda index: sized(grid[index]))
    best = grid.index(before.parameters) if before else -1
    fitting = before.candidate if before else None
    start = best if before else bisect_left(grid, _held(job(0)))
    for choice in _choices(job(len(grid) // 2), fixed):
        free = {**fixed, **choice}
        lean = lru_cache(SIZES_KEPT)(partial(_lean, job, free, reserve))
        most = _last(partial(_has_room, job, free, reserve), best + 1, start, len(grid))
        last = _last(partial(_fits, lean), best + 1, most, most + 1, step=1)
        best, fitting = last, lean(last) if last > best else fitting
        start = 0
    if best < 0:
        return None
    candidate = _fastest(job(best), fixed, reserve) or fitting
    assert candidate is not None  # the leanest fits
    while best + 1 < len(grid):
        larger = _fastest(job(best + 1), fixed, reserve)
        if larger is None:
            short = lack(leanest(job(best + 1), fixed, reserve))
            return Largest(grid[best], candidate, grid[best + 1], short)
        best, candidate = best + 1, larger  # what looks leanest need not be
    return Largest(grid[best], candidate, None, None)


def _fastest(job: Job, fixed: dict[str, Any], reserve: float | None) -> Candidate | None:
    return plan(job, fixed, reserve=reserve).chosen


def _choices(job: Job, fixed: dict[str, Any]) -> list[dict[str, Any]]:
    """Stages and offload that are left open, those that leave most room first."""
    variants = space(job, fixed, sequences_per_gpu(job, fixed)).variants
    choices = {tuple(variant.choice[name] for name in CHOICE) for variant in variants}
    return [dict(zip(CHOICE, values, strict=True)) for values in sorted(choices, key=_room)]


def _room(values: tuple[Any, ...]) -> tuple[Any, ...]:
    stage, optimizer, parameters = values
    parts = [(part.device == "nvme", part.ratio) if part else (False, 0.0) for part in (parameters, optimizer)]
    return tuple(-part for part in (stage, *(number for pair in parts for number in pair)))


def _lean(job: Callable[[int], Job], fixed: dict[str, Any], reserve: float | None, index: int) -> Candidate | None:
    """What a choice needs least at a size; None where it cannot run, or does not fit."""
    return leanest_fitting(job(index), fixed, reserve)


def _has_room(job: Callable[[int], Job], fixed: dict[str, Any], reserve: float | None, index: int) -> bool:
    """Whether a choice may fit at a size, by what is counted most easily."""
    return leanest_has_room(job(index), fixed, reserve)


def _fits(lean: Callable[[int], Candidate | None], index: int) -> bool:
    return lean(index) is not None


def _held(job: Job) -> int:
    """Parameters whose states all the memory there is would hold."""
    cluster = job.cluster
    node = (cluster.capacity or 0) * cluster.gpus_per_node + (cluster.host_memory or 0) + (cluster.nvme or 0)
    return cluster.nodes * node // BYTES_EACH


def _last(holds: Callable[[int], bool], low: int, start: int, end: int, step: int = STEP) -> int:
    """The last index before `end` for which it holds, if it holds for all from `low` to there; else `low` - 1.

    It is looked for from `start`, at first `step` further and then twice as far each time.
    """
    if low >= end or not holds(low):
        return low - 1
    high = max(low, min(start, end - 1))
    if holds(high):
        low = high
        while (high := min(low + step, end)) < end and holds(high):
            low, step = high, 2 * step
    else:
        while high - step > low and not holds(high - step):
            high, step = high - step, 2 * step
        low = max(low, high - step)
    return bisect_left(range(end), True, lo=low + 1, hi=high, key=lambda index: not holds(index)) - 1
