"""What stage 3's coordinator has gathered at least when forward ends, without a replay of it.

partitioned_param_coordinator.py of DeepSpeed 0.19.8: whenever a module is entered (fetch_sub_module), tensors ahead are
gathered until stage3_max_live_parameters are there or a bucket is full; when one is left (release_sub_module), what
comes again within stage3_max_reuse_distance stays.
"""

from __future__ import annotations

from collections.abc import Hashable

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
