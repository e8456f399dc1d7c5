"""The beginning of stage 3's backward, replayed: a bound of what all of it needs, for a small part of the work."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.deepspeed.allocation_tracker import MemorySnapshot
from zeroplan.costs.deepspeed.backward import arrivals, nothing_gathered
from zeroplan.costs.deepspeed.cache import cached, strategy_key
from zeroplan.costs.deepspeed.event_log import RepeatedBlock
from zeroplan.costs.deepspeed.events import GatheredMemory, MicroStep
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.layout import bucket_dtypes, communication_dtypes, tensor_sizes
from zeroplan.costs.deepspeed.partitions import own_bytes
from zeroplan.costs.deepspeed.reduction import buckets
from zeroplan.costs.deepspeed.stage_3_backward import Stage3Backward
from zeroplan.specs.job import Job

FIRST = 2
"""Layers, in whose backward most is alive where activations are few."""


@cached(strategy_key, max_size=512)
def backward_beginning(job: Job) -> Sequence[RepeatedBlock[MemorySnapshot]]:
    """What DeepSpeed has alive in a step's last backward, event by event, until gradients of the first few layers are
    there.
    """
    return _beginning(job, micro_steps(job).largest[-1])


@cached(strategy_key, max_size=512)
def bare_backward_beginning(job: Job) -> Sequence[RepeatedBlock[MemorySnapshot]]:
    """The same with nothing gathered but what the module at work reads: any thresholds and prefetches gather more."""
    own = nothing_gathered(job)
    if job.ranks > 1 or job.strategy.offload_param:
        own = own._replace(backward=tuple(_with_own(job, block) for block in own.backward))
    return _beginning(job, own)


def _with_own(job: Job, block: RepeatedBlock[GatheredMemory]) -> RepeatedBlock[GatheredMemory]:
    """From where a module is entered to where it is left; of one that is not left nothing is known."""
    own, events = own_bytes(job), []
    left = {event.hook.module for event in block.events if not event.hook.enters}
    inside: dict[int, tuple[int, ...]] = {}
    before = 0
    for event in block.events:
        hook = event.hook
        if hook.enters and hook.module in left:
            inside[hook.module] = hook.tensors
        elif not hook.enters:
            inside.pop(hook.module, None)
        reads = {index for tensors in inside.values() for index in tensors}
        now = sum([own.get(index, 0) for index in reads]) // job.strategy.element_bytes
        events.append(event._replace(elements=now, most=max(before, now), ready=before))
        before = now
    return block._replace(events=events)


def _beginning(job: Job, micro_step: MicroStep) -> Sequence[RepeatedBlock[MemorySnapshot]]:
    result = Stage3Backward(job)
    result.run(micro_step, gradients=FIRST * _largest_layer(job))
    return result.tracker.snapshots.blocks()


def _largest_layer(job: Job) -> int:
    """Tensors of it; of a model without layers all."""
    return max((layer.tensors for layer in job.execution.layers), default=len(job.model.tensors))


def identical_beginning(job: Job) -> Job:
    """With the smallest bucket that is filled with the same of those gradients: just the fullest of them fills it."""
    limit, sizes, dtypes = job.strategy.reduce_bucket_size, tensor_sizes(job), communication_dtypes(job)
    first = [arrival.tensor for arrival in arrivals(job)[: (FIRST + 1) * _largest_layer(job)]]
    filled = (
        bucket.elements
        for dtype in bucket_dtypes(job)
        for bucket in buckets((index for index in first if dtypes[index] == dtype), sizes, limit)
    )
    return job.at(reduce_bucket_size=max((elements for elements in filled if elements <= limit), default=1))
