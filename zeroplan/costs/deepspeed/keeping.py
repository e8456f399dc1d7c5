"""What stage 3's coordinator has gathered at least and at most when forward ends, without a replay of it.

partitioned_param_coordinator.py of DeepSpeed 0.19.8: whenever a module is entered (fetch_sub_module), tensors ahead are
gathered until stage3_max_live_parameters are there or a bucket is full; when one is left (release_sub_module), what
comes again within stage3_max_reuse_distance stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import accumulate
from typing import NamedTuple

from zeroplan.costs.deepspeed.fetch import course_of
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.once import once
from zeroplan.costs.deepspeed.partitions import persistent_tensors
from zeroplan.costs.deepspeed.visits import decides_visits
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def kept_at_least(job: Job) -> int:
    """Elements, persistent parameters left out."""
    return max(_ahead(job), _for_reuse(job))


def kept_at_most(job: Job) -> int:
    """Elements, persistent parameters left out, when the forward of a step's first micro-step ends.

    Both are what backward reads first: what the look ahead has reached, where all before the last tensor was less than
    stage3_max_live_parameters, and what comes again within stage3_max_reuse_distance.
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
    """From forward's end to the visit that reads it."""


@once(lambda strategy: (decides_visits(strategy), _persistence(strategy)))
def _first_reads(job: Job) -> FirstReads:
    course, sizes, stay = course_of(job), tensor_sizes(job), set(persistent_tensors(job))
    entered = sum(visit.enters for visit in job.execution.forward)
    travelled, order = course.own.travelled, dict[int, int]()
    for index, step in course.trace:
        if step >= entered and index not in stay:
            order.setdefault(index, travelled[step] - travelled[entered])
    return FirstReads([*accumulate((sizes[index] for index in order), initial=0)], [-1, *order.values()])


def _decides_ahead(strategy: Strategy) -> Hashable:
    return (
        decides_visits(strategy), strategy.max_live_parameters, strategy.prefetch_bucket_size, _persistence(strategy),
        strategy.offload_param, strategy.allgather_sequential,
    )  # fmt: skip


def _decides_reuse(strategy: Strategy) -> Hashable:
    return decides_visits(strategy), strategy.max_reuse_distance, _persistence(strategy)


def _persistence(strategy: Strategy) -> Hashable:
    return strategy.param_persistence_threshold, strategy.model_persistence_threshold


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
    course, reach, sizes = course_of(job), job.strategy.max_reuse_distance, tensor_sizes(job)
    last: dict[int, tuple[int, bool]] = {}
    step = 0
    for visit in job.execution.forward:
        if visit.enters:
            step += 1
        else:  # released as of the step that comes
            last.update(dict.fromkeys(visit.tensors, (step, visit.module in job.execution.leaves)))
    stay = set(persistent_tensors(job))
    return sum(
        sizes[index] for index, (at, whole) in last.items()
        if index not in stay and (course.whole if whole else course.own).comes_again(index, at, reach)
    )  # fmt: skip
