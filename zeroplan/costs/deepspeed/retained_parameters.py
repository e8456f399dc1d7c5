"""What stage 3's coordinator has gathered at least and at most when forward ends, without a replay of it.

partitioned_param_coordinator.py of DeepSpeed 0.19.8: whenever a module is entered (fetch_sub_module), tensors ahead are
gathered until stage3_max_live_parameters are there or a bucket is full; when one is left (release_sub_module), what
comes again within stage3_max_reuse_distance stays.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from itertools import accumulate

from zeroplan.costs.deepspeed.cache import cached
from zeroplan.costs.deepspeed.fetch import access_order_of
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.module_hooks import cached_per_execution, hook_order_key
from zeroplan.costs.deepspeed.partitions import persistence_key, persistent_tensors
from zeroplan.record import NamedTuple
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def retained_at_least(job: Job) -> int:
    """Elements, persistent parameters left out."""
    return max(_ahead(job), _retained_for_reuse(job))


def retained_at_most(job: Job) -> int:
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
    """From where forward releases it to the hook that reads it, or that of a later one, whichever is less."""


@cached(lambda strategy: (hook_order_key(strategy), persistence_key(strategy)))
def _first_reads(job: Job) -> FirstReads:
    access, sizes, stay = access_order_of(job), tensor_sizes(job), set(persistent_tensors(job))
    entered = sum(hook.enters for hook in job.execution.forward)
    order = dict.fromkeys(index for index, step in access.trace if step >= entered and index not in stay)
    away = _distances(job)
    nearest = accumulate((away.get(index, 0) for index in reversed(order)), min)
    return FirstReads([*accumulate((sizes[index] for index in order), initial=0)], [-1, *reversed([*nearest])])


@cached_per_execution
def _distances(job: Job) -> dict[int, int]:
    """How far the next use of each tensor is from where forward releases it."""
    access, leaves = access_order_of(job), job.execution.leaves
    last: dict[int, tuple[int, bool]] = {}
    step = 0
    for hook in job.execution.forward:
        if hook.enters:
            step += 1
        else:  # released as of the step that comes
            last.update(dict.fromkeys(hook.tensors, (step, hook.module in leaves)))
    result = (
        (index, (access.full if full else access.own).to_next_use(index, at)) for index, (at, full) in last.items()
    )
    return {index: distance for index, distance in result if distance is not None}


def _ahead_key(strategy: Strategy) -> Hashable:
    return (
        hook_order_key(strategy), strategy.max_live_parameters, strategy.prefetch_bucket_size,
        persistence_key(strategy), strategy.offload_param, strategy.allgather_sequential,
    )  # fmt: skip


def _reuse_key(strategy: Strategy) -> Hashable:
    return hook_order_key(strategy), strategy.max_reuse_distance, persistence_key(strategy)


@cached(_ahead_key)
def _ahead(job: Job) -> int:
    """Each entry brings a bucket or all that may live, each exit takes no more than the module's own.

    Once nothing is left to be gathered ahead, all that backward reads is there.
    """
    strategy, sizes, count = job.strategy, tensor_sizes(job), 0
    bucket, live = strategy.prefetch_bucket_size, strategy.max_live_parameters
    on_nvme = strategy.offload_param and strategy.offload_param.device == "nvme"  # whose partitions end the look ahead
    if bucket <= 0 or on_nvme or strategy.allgather_sequential:
        return 0
    for hook in job.execution.forward:
        if hook.enters:
            count = max(count, min(live, count + bucket))
        elif hook.tensors:
            count = max(0, count - sum([sizes[index] for index in hook.tensors]))
    return max(0, min(count, sum(sizes)) - sum([sizes[index] for index in persistent_tensors(job)]))


@cached(_reuse_key)
def _retained_for_reuse(job: Job) -> int:
    """Tensors whose next use, after the last in forward, is near enough."""
    sizes, stay, reach = tensor_sizes(job), set(persistent_tensors(job)), job.strategy.max_reuse_distance
    return sum(sizes[index] for index, away in _distances(job).items() if index not in stay and away < reach)
