"""The module hooks of a job: in which order its passes enter and leave modules."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.cache import by_execution, cached
from zeroplan.specs.execution import ModuleHook
from zeroplan.specs.job import Job


def backward_hooks(job: Job) -> Sequence[ModuleHook]:
    """With what checkpointing runs again."""
    return job.execution.recomputing if job.strategy.recomputing.every else job.execution.backward


cached_per_execution = cached(lambda strategy: strategy.recomputing.every > 0, order=by_execution)
"""Remembers what is read of the hooks alone."""
