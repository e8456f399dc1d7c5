"""What stage 3's coordinator has gathered at least and at most when forward ends, without a replay of it.

partitioned_param_coordinator.py of DeepSpeed 0.19.8: whenever a module is entered (fetch_sub_module), tensors ahead are
gathered until stage3_max_live_parameters are there or a bucket is full; when one is left (release_sub_module), what
comes again within stage3_max_reuse_distance stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import accumulate

from zeroplan.costs.deepspeed.fetch import course_of
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.once import once
from zeroplan.costs.deepspeed.partitions import decides_persistence, persistent_tensors
from zeroplan.costs.deepspeed.visits import decides_visits, once_an_execution
from zeroplan.record import NamedTuple
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def kept_at_least(job: Job) -> int:
    """Elements, persistent parameters left out."""
    return max(_ahead(job), _for_reuse(job))


def kept_at_most(job: Job) -> int:
    """Elements, persistent parameters left out, when the forward of a step's first micro-step ends.

    They are what backward reads first: as far as the look ahead has reached, where all before the last tensor was less
    than stage3_max_live_parameters, or as far as something comes again within stage3_max_reuse_distance.
    """
    strategy, first = job.strategy, _first_reads(job)
    ahead = strategy.max_live_parameters if strategy.prefetch_bucket_size > 0 else 0
    reached = bisect_left(first.elements, ahead), bisect_left(first.distances, strategy.max_reuse_distance) - 1
    return first.elements[min(max(reached), len(first.elements) - 1)]


class FirstReads(NamedTuple):
    """Tensors as backward comes to read them, none twice, behind nothing at all."""

    elements: list[int]
    """Up to each and with it."""
    distances: list[int]
    """From where forward releases it to the visit that reads it, or that of a later one, whichever is less."""


@once(lambda strategy: (decides_visits(strategy), decides_persistence(strategy)))
def _first_reads(job: Job) -> FirstReads:
    course, sizes, stay = course_of(job), tensor_sizes(job), set(persistent_tensors(job))
    entered = sum(visit.enters for visit in job.execution.forward)
    order = dict.fromkeys(index for index, step in course.trace if step >= entered and index not in stay)
    away = _distances(job)
    nearest = accumulate((away.get(index, 0) for index in reversed(order)), min)
    return FirstReads([*accumulate((sizes[index] for index in order), initial=0)], [-1, *reversed([*nearest])])


@once_an_execution
def _distances(job: Job) -> dict[int, int]:
    """Of each tensor that is used again, how far that is from where forward releases it."""
    course, leaves = course_of(job), job.execution.leaves
    last: dict[int, tuple[int, bool]] = {}
    step = 0
    for visit in job.execution.forward:
        if visit.enters:
            step += 1
        else:  # released as of the step that comes
            last.update(dict.fromkeys(visit.tensors, (step, visit.module in leaves)))
    found = (
        (index, (course.whole if whole else course.own).to_next_use(index, at)) for index, (at, whole) in last.items()
    )
    return {index: distance for index, distance in found if distance is not None}


def _decides_ahead(strategy: Strategy) -> Hashable:
    return (
        decides_visits(strategy), strategy.max_live_parameters, strategy.prefetch_bucket_size,
        decides_persistence(strategy), strategy.offload_param, strategy.allgather_sequential,
    )  # fmt: skip


def _decides_reuse(strategy: Strategy) -> Hashable:
    return decides_visits(strategy), strategy.max_reuse_distance, decides_persistence(strategy)


@once(_decides_ahead)
def _ahead(job: Job) -> int:
    """Each entry brings a bucket or all that may live, each exit takes no more than the module's own.

    Once nothing is left to be gathered ahead, all that backward reads is there.
    """
    strategy, sizes, count = job.strategy, tensor_sizes(job), 0
    bucket, live = strategy.prefetch_bucket_size, strategy.max_live_parameters
    on_nvme = strategy.offload_param and strategy.offload_param.device == "nvme"  # whose partitions end the look ahead
    if bucket <= 0 or on_nvme or strategy.allgather_sequential:
        return 0
    for visit in job.execution.forward:
        if visit.enters:
            count = max(count, min(live, count + bucket))
        elif visit.tensors:
            count = max(0, count - sum([sizes[index] for index in visit.tensors]))
    return max(0, min(count, sum(sizes)) - sum([sizes[index] for index in persistent_tensors(job)]))


@once(_decides_reuse)
def _for_reuse(job: Job) -> int:
    """Tensors whose next use, after the last in forward, is near enough."""
    sizes, stay, reach = tensor_sizes(job), set(persistent_tensors(job)), job.strategy.max_reuse_distance
    return sum(sizes[index] for index, away in _distances(job).items() if index not in stay and away < reach)
