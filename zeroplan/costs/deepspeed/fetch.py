"""The gathers of stage 3 in a steady state: the coordinator's replay, warmed up as DeepSpeed's own is.

The first micro-step of a run records the trace (no prefetch, no reuse); the replay starts with the second.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product
from typing import NamedTuple

from zeroplan.costs.deepspeed.coordinator import Coordinator, Settings
from zeroplan.costs.deepspeed.events import Event, Held
from zeroplan.costs.deepspeed.layout import persistent_tensors, tensor_sizes
from zeroplan.costs.deepspeed.once import once
from zeroplan.costs.deepspeed.swapper import OutOfBuffersError
from zeroplan.costs.deepspeed.swapping import parameter_buffers, swapped_parameters
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job
from zeroplan.specs.model import Visit
from zeroplan.specs.strategy import Strategy


def _decides(strategy: Strategy) -> Hashable:
    return (
        strategy.prefetch_bucket_size, strategy.max_live_parameters, strategy.max_reuse_distance,
        strategy.param_persistence_threshold, strategy.model_persistence_threshold, strategy.leaves,
        strategy.checkpointing == "full", strategy.attention == "eager", min(strategy.grad_accum, 2),
        strategy.offload_param, strategy.all_reduce_for_fetch, strategy.allgather_sequential, strategy.sub_group_size,
        strategy.parameter_groups,
    )  # fmt: skip


@once(_decides, most_kept=8)
def steady_micro_step(job: Job) -> tuple[Event, ...]:
    """The first micro-step of the third optimizer step; later ones repeat it.

    One rank gathers nothing: its partitions are the parameters, or are copied from the host when they are offloaded.
    Raises `ContradictionError` where DeepSpeed runs out of buffers for partitions on NVMe.
    """
    if job.ranks == 1 and not job.strategy.offload_param:
        order = job.execution
        visits = [
            (visit, phase) for phase, found in ((False, order.forward), (True, _backward(job))) for visit in found
        ]
        return tuple(Held(0, 0, 0, visit, phase) for visit, phase in visits)
    try:
        return _replayed(job, _settings(job))
    except OutOfBuffersError as error:
        raise _too_few_buffers(job) from error


def _backward(job: Job) -> tuple[Visit, ...]:
    return job.execution.recomputing if job.strategy.checkpointing == "full" else job.execution.backward


def _settings(job: Job) -> Settings:
    order, strategy = job.execution, job.strategy
    return Settings(
        frozenset(persistent_tensors(job)), job.ranks,
        1 if strategy.allgather_sequential else strategy.prefetch_bucket_size, strategy.max_live_parameters,
        strategy.max_reuse_distance, min(strategy.grad_accum, 2), strategy.offload_param is not None,
        strategy.all_reduce_for_fetch, strategy.allgather_sequential, order.leaves, order.subtrees,
        frozenset(index for index, tensor in enumerate(job.model.tensors) if tensor.viewed),
        strategy.checkpointing == "full", frozenset(swapped_parameters(job)), parameter_buffers(job),
    )  # fmt: skip


class Buffers(NamedTuple):
    """offload_param.buffer_count and stage3_prefetch_bucket_size."""

    buffer_count: int
    prefetch_bucket_size: int


@once(_decides)
def sufficient_buffers(job: Job) -> Buffers | None:
    """The first that DeepSpeed can train with: what is there, more buffers, or no prefetch of a tensor's second use."""
    settings = _settings(job)
    found, prefetch = settings.swap_buffers, settings.prefetch_bucket_size
    counts = [found]
    while counts[-1] < len(settings.swapped):
        counts.append(2 * counts[-1])
    for bucket, count in product((prefetch, 0), counts):
        try:
            _replayed(job, settings._replace(swap_buffers=count, prefetch_bucket_size=bucket))
        except OutOfBuffersError:
            continue
        return Buffers(count, bucket)
    return None


def _too_few_buffers(job: Job) -> ContradictionError:
    found, advice = parameter_buffers(job), ""
    if enough := sufficient_buffers(job):
        written = [f'"buffer_count": {enough.buffer_count}'] * (enough.buffer_count != found)
        written += ['"stage3_prefetch_bucket_size": 0'] * (enough.prefetch_bucket_size == 0)
        advice = f", write {' and '.join(written)}"
    return ContradictionError(
        f"offload_param: found buffer_count {found}, expected one for each partition that is read from NVMe and not "
        f"released yet; DeepSpeed stops in training (Not enough buffers){advice}"
    )


def _replayed(job: Job, settings: Settings) -> tuple[Event, ...]:
    """Two optimizer steps, then the micro-step that is looked at. The run's first only records the trace.

    Without accumulation every later step starts from the same state, so the first replayed is the steady one.
    """
    coordinator = Coordinator(tensor_sizes(job), settings, job.execution.forward, _backward(job))
    warm_up = (settings.grad_accum - 1, settings.grad_accum) if settings.grad_accum > 1 else ()
    for micro_steps in warm_up:
        for _micro in range(micro_steps):
            coordinator.micro_step()
        coordinator.gather_persistent()
    coordinator.gather_persistent()
    return tuple(coordinator.micro_step())
