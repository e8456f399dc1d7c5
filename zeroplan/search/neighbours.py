"""Strategies one choice away from a plan, and those nearest to fitting when none does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

from zeroplan.costs.timing.computing import layers_again
from zeroplan.search.candidate import Candidate, Evaluator, passes_seconds
from zeroplan.search.space import Configuration, Space, Variant
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import STAGES, Strategy

CHOICES = ("stage", "offload_optimizer", "offload_param", "checkpointing", "attention", "hpz_partition_size")
USUAL = {
    "buckets": ("reduce_bucket_size", "prefetch_bucket_size"),
    "thresholds": ("max_live_parameters", "max_reuse_distance"),
    "sub-groups": ("sub_group_size",),
}  # fmt: skip


def neighbours(space: Space, plan: Candidate, reserve: float | None) -> list[tuple[str, Candidate]]:
    """The plan with one thing changed: micro-batch, stage, offload, checkpointing, or DeepSpeed's own buckets.

    One of each choice that the space has, and in words what it changes; what DeepSpeed refuses is left out.
    """
    evaluator = Evaluator(reserve)
    return [(change, one) for change, job in _each(space, plan.job) if (one := evaluator.evaluate(job))]


def closest(space: Space, plan: Candidate, reserve: float | None, count: int) -> list[tuple[str, Candidate]]:
    """The fastest of those that fit, and then of those that do not, as far as so many are wanted: what is slower than
    these by its passes alone is not counted.
    """
    evaluator, each = Evaluator(reserve), _each(space, plan.job)
    fitting = _fastest(_with_room(each, evaluator), evaluator.fitting, count)
    accepted = {change for change, _one in fitting}
    others = [one for one in each if one[0] not in accepted] if len(fitting) < count else []
    return fitting + _fastest(others, evaluator.evaluate, count - len(fitting))


def _fastest(
    each: Iterable[tuple[str, Job]], counted: Callable[[Job], Candidate | None], count: int
) -> list[tuple[str, Candidate]]:  # fmt: skip
    """So many of those that `counted` has a candidate for, the fastest first; of equals as they come."""
    fastest: list[tuple[float, int, str, Candidate]] = []
    waiting = [
        (_per_sequence(passes_seconds(job), job), place, change, job) for place, (change, job) in enumerate(each)
    ]
    for least, place, change, job in sorted(waiting, key=itemgetter(0)):
        if len(fastest) == count and (not fastest or least > fastest[-1][0]):
            break
        if one := counted(job):
            fastest = sorted([*fastest, (_per_sequence(one.time.total, job), place, change, one)])[:count]
    return [(change, one) for _seconds, _place, change, one in fastest]


def _per_sequence(seconds: float, job: Job) -> float:
    return seconds / (job.strategy.micro_batch * job.strategy.micro_steps)


def _each(space: Space, plan: Job) -> list[tuple[str, Job]]:
    """What each changes, in words, and the job that comes of it."""
    changed: dict[Strategy, tuple[str, Job]] = {}
    for change, job in _changed(space, plan):
        changed.setdefault(job.strategy, (change, job))
    return [*changed.values()]


def _with_room(each: list[tuple[str, Job]], evaluator: Evaluator) -> list[tuple[str, Job]]:
    """Those that have room by what is counted most easily; with fewer layers that run again none has more (`room`)."""
    lacking: set[Strategy] = set()
    there: set[Strategy] = set()
    for _change, job in sorted(each, key=lambda one: -layers_again(one[1])):
        alike = job.strategy if job.strategy.recomputing.attention else job.at(checkpointing="none").strategy
        if alike not in lacking and evaluator.has_room(job):
            there.add(job.strategy)
        else:
            lacking.add(alike)
    return [(change, job) for change, job in each if job.strategy in there]


def nearest(space: Space, reserve: float | None) -> list[Candidate]:
    """What needs least of each stage and offload, counted, whether it fits or not."""
    each = (Evaluator(reserve).lean(one) for one in leanest_of_each(space))
    return [min(candidates, key=lambda one: one.fit.gpu.needed) for candidates in each if candidates]


def nearest_fitting(space: Space, reserve: float | None) -> Iterator[Candidate]:
    """What needs least of each stage and offload of what fits there."""
    for candidates in map(Evaluator(reserve).lean_fitting, leanest_of_each(space)):
        if least := min(candidates, key=lambda one: one.fit.gpu.needed, default=None):
            yield least


def leanest_of_each(space: Space) -> list[Configuration]:
    """One of each stage and offload: the smallest micro-batch, all checkpointed."""
    first: dict[tuple[Any, ...], Variant] = {}
    for variant in sorted(space.variants, key=lambda variant: variant.choice["checkpointing"] != "full"):
        parts = variant.choice["offload_optimizer"], variant.choice["offload_param"]
        first.setdefault((variant.choice["stage"], *(part and part.device for part in parts)), variant)
    return [Configuration(space, variant, min(space.sizes)) for variant in first.values()]


def _changed(space: Space, plan: Job) -> Iterator[tuple[str, Job]]:
    own = plan.strategy
    larger = [size for size in space.sizes if size > own.micro_batch]
    if larger:
        yield f"micro-batch {larger[-1]}", plan.at(micro_batch=larger[-1], grad_accum=space.per_gpu // larger[-1])
    for variant in space.variants:
        others = [name for name in CHOICES if getattr(own, name) != variant.choice.get(name, getattr(own, name))]
        if len(others) == 1:
            yield words(others[0], variant.choice[others[0]]), with_choice(variant, plan)
        for what, names in USUAL.items() if not others else ():
            usual = {name: variant.numbers[name][0] for name in names if name in variant.numbers}
            if any(getattr(own, name) != value for name, value in usual.items()):
                sizes = " and ".join(f"{size:,}" for size in usual.values())
                yield f"DeepSpeed's own {what} ({sizes})", plan.at(**usual)


def words(name: str, value: Any) -> str:
    """One choice."""
    if name == "stage":
        return f"ZeRO-{value}"
    if name == "checkpointing":
        return f"{'no' if value == 'none' else value} checkpointing"
    if name == "attention":
        return f"{value} attention"
    if name == "hpz_partition_size":
        return f"secondary partitions of {value} GPUs (hpZ)" if value > 1 else "no secondary partitions (hpZ)"
    what = "optimizer" if name == "offload_optimizer" else "parameters"
    if value is None:
        return f"{what} on the GPU"
    return f"{what} on {value.device}" + (f", ratio {value.ratio:g}" if value.ratio < 1 else "")


def with_choice(variant: Variant, plan: Job) -> Job:
    """The variant with the plan's numbers where it has them among its own, else its first."""
    numbers = {
        name: getattr(plan.strategy, name) if getattr(plan.strategy, name) in values else values[0]
        for name, values in variant.numbers.items()
    }
    alone = {} if variant.choice["stage"] == STAGES[-1] else {"hpz_partition_size": 1}
    return plan.at(**{**alone, **variant.choice, **numbers})
