"""The gathers of stage 3 in a steady state: the coordinator's replay, warmed up as DeepSpeed's own is.

The first micro-step of a run records the trace (no prefetch, no reuse); the replay starts with the second.
"""

from __future__ import annotations

from collections.abc import Hashable

from zeroplan.costs.deepspeed.coordinator import Coordinator, Gather, Held, Settings
from zeroplan.costs.deepspeed.layout import persistent_tensors, tensor_sizes
from zeroplan.costs.deepspeed.once import once
from zeroplan.specs.job import Job
from zeroplan.specs.model import Visit
from zeroplan.specs.strategy import Strategy


def _decides(strategy: Strategy) -> Hashable:
    return (
        strategy.prefetch_bucket_size, strategy.max_live_parameters, strategy.max_reuse_distance,
        strategy.param_persistence_threshold, strategy.model_persistence_threshold, strategy.leaves,
        strategy.checkpointing == "full", strategy.attention == "eager", min(strategy.grad_accum, 2),
        strategy.offload_param is not None, strategy.all_reduce_for_fetch, strategy.allgather_sequential,
    )  # fmt: skip


@once(_decides, most_kept=8)
def steady_micro_step(job: Job) -> tuple[Gather | Held, ...]:
    """The first micro-step of the third optimizer step; later ones repeat it.

    One rank gathers nothing: its partitions are the parameters, or are copied from the host when they are offloaded.
    """
    order, strategy = job.execution, job.strategy
    backward = order.recomputing if strategy.checkpointing == "full" else order.backward
    if job.ranks == 1 and not strategy.offload_param:
        visits = [(visit, phase) for phase, found in ((False, order.forward), (True, backward)) for visit in found]
        return tuple(Held(0, 0, 0, visit, phase) for visit, phase in visits)
    settings = Settings(
        frozenset(persistent_tensors(job)), job.ranks,
        1 if strategy.allgather_sequential else strategy.prefetch_bucket_size, strategy.max_live_parameters,
        strategy.max_reuse_distance, min(strategy.grad_accum, 2), strategy.offload_param is not None,
        strategy.all_reduce_for_fetch, strategy.allgather_sequential, order.leaves, order.subtrees,
        frozenset(index for index, tensor in enumerate(job.model.tensors) if tensor.viewed),
        strategy.checkpointing == "full",
    )  # fmt: skip
    return _replayed(tuple(tensor_sizes(job)), settings, order.forward, backward)


def _replayed(
    sizes: tuple[int, ...], settings: Settings, forward: tuple[Visit, ...], backward: tuple[Visit, ...]
) -> tuple[Gather | Held, ...]:
    """Two optimizer steps, then the micro-step that is looked at. The run's first only records the trace.

    Without accumulation every later step starts from the same state, so the first replayed is the steady one.
    """
    coordinator = Coordinator(sizes, settings, forward, backward)
    warm_up = (settings.grad_accum - 1, settings.grad_accum) if settings.grad_accum > 1 else ()
    for micro_steps in warm_up:
        for _micro in range(micro_steps):
            coordinator.micro_step()
        coordinator.gather_persistent()
    coordinator.gather_persistent()
    return tuple(coordinator.micro_step())
