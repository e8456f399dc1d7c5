"""The module hooks of a job: in which order its passes enter and leave modules."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from zeroplan.costs.deepspeed.cache import IdentityKey, cached
from zeroplan.costs.deepspeed.events import NO_OFFSET, GatheredMemory, LayerOffset, RepeatedBlock
from zeroplan.costs.deepspeed.layer_intervals import Passes, layer_intervals, repeated_layers
from zeroplan.specs.execution import ModuleHook
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def hook_order_key(strategy: Strategy) -> Hashable:
    """All that a model's order of execution depends on."""
    return (
        strategy.leaves, strategy.recomputing, strategy.attention == "eager", strategy.flash, strategy.kernels,
        strategy.stage == 3,
    )  # fmt: skip


def backward_hooks(job: Job) -> Sequence[ModuleHook]:
    """With what checkpointing runs again."""
    return job.execution.recomputing if job.strategy.recomputing.every else job.execution.backward


cached_per_execution = cached(
    lambda strategy: strategy.recomputing.every > 0, order=lambda job: IdentityKey(job.execution)
)
"""Remembers what is read of the hooks alone. Of what `hook_order_key` tells apart much runs in one order: all kinds of
attention do that enter no module of their own."""


@cached_per_execution
def passes_of(job: Job) -> Passes:
    hooks = job.execution.forward, backward_hooks(job)
    return Passes(hooks, tuple(layer_intervals(hooks, job.execution.layers)) if job.execution.layers else ())


def pass_hooks(job: Job, pass_index: int, *, using: bool = False) -> tuple[RepeatedBlock[GatheredMemory], ...]:
    """The hooks of forward (0) or backward (1) where nothing is gathered, or those of them that use tensors."""
    passes, start = passes_of(job), 0
    hooks = passes.hooks[pass_index]
    result: list[RepeatedBlock[GatheredMemory]] = []

    def add(first: int, end: int, times: int = 1, by: LayerOffset = NO_OFFSET) -> None:
        events = [
            GatheredMemory(0, 0, 0, 0, hooks[at], at) for at in range(first, end) if hooks[at].tensors or not using
        ]
        if events:
            result.append(RepeatedBlock(events, times, by))

    for run in repeated_layers(passes, pass_index):
        add(start, run.start)
        add(run.start, run.start + run.offset.hooks, run.layers, run.offset)
        start = run.start + run.layers * run.offset.hooks
    add(start, len(hooks))
    return tuple(result)
