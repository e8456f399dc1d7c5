"""Strategies one choice away from a plan, and those nearest to fitting when none does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zeroplan.errors import ContradictionError
from zeroplan.search.candidate import Candidate, evaluate
from zeroplan.search.space import Branch, Space
from zeroplan.specs.job import Job

CHOICES = ("stage", "offload_optimizer", "offload_param", "checkpointing")
BUCKETS = ("reduce_bucket_size", "prefetch_bucket_size")


def neighbours(space: Space, plan: Candidate, reserve: float) -> list[Candidate]:
    """The plan with one thing changed: micro-batch, stage, offload, checkpointing, or DeepSpeed's own buckets.

    One of each choice that the space has; what DeepSpeed refuses is left out.
    """
    changed = {job.strategy: job for job in _changed(space, plan.job)}
    return [found for job in changed.values() if (found := _evaluated(job, reserve))]


def nearest(space: Space, reserve: float) -> list[Candidate]:
    """Of each stage and offload what needs least: the smallest micro-batch, all checkpointed, the leanest numbers."""
    found: dict[tuple[Any, ...], Job] = {}
    for branch in space.branches:
        choice = branch.choice
        key = choice["stage"], *(part and part.device for part in _offloads(choice))
        if key not in found or choice["checkpointing"] == "full":
            found[key] = space.sized(branch, space.sizes[-1]).at(**branch.leanest)
    return [candidate for job in found.values() if (candidate := _evaluated(job, reserve))]


def _changed(space: Space, plan: Job) -> Iterator[Job]:
    own = plan.strategy
    larger = [size for size in space.sizes if size > own.micro_batch]
    if larger:
        yield plan.at(micro_batch=larger[-1], grad_accum=space.per_gpu // larger[-1])
    for branch in space.branches:
        if sum(getattr(own, name) != branch.choice[name] for name in CHOICES) == 1:
            yield _with(branch, plan)
        elif all(getattr(own, name) == branch.choice[name] for name in CHOICES):
            usual = {name: branch.numbers[name][0] for name in BUCKETS if name in branch.numbers}
            if any(getattr(own, name) != value for name, value in usual.items()):
                yield plan.at(**usual)


def _with(branch: Branch, plan: Job) -> Job:
    """The branch with the plan's numbers where it has them among its own, else its first."""
    numbers = {
        name: getattr(plan.strategy, name) if getattr(plan.strategy, name) in values else values[0]
        for name, values in branch.numbers.items()
    }
    return plan.at(**{**branch.choice, **numbers})


def _offloads(choice: dict[str, Any]) -> tuple[Any, ...]:
    return choice["offload_optimizer"], choice["offload_param"]


def _evaluated(job: Job, reserve: float) -> Candidate | None:
    try:
        return evaluate(job, reserve)
    except ContradictionError:
        return None
