"""The module hooks of a job: in which order its passes enter and leave modules."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from zeroplan.costs.deepspeed.cache import IdentityKey, cached
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
