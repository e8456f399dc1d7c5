"""All strategies that a request leaves free: variants, each with its micro-batches and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import product
from math import prod
from typing import Any, NamedTuple

from zeroplan.costs import recomputing
from zeroplan.costs.engine import Choice, Numbers, Start, TrainingEngine, Values
from zeroplan.costs.engines import engine_of
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job

WITHOUT_PACKAGE = ("sdpa", "eager")
CHECKPOINTING = ("none", "selective", "full", "every-2", "every-3", "every-4", "every-8")
SIMPLEST_CHECKPOINTING = ("none", "full", "selective")
MOST_SIZES = 1024
OPTIMIZER = "offload_optimizer"


class Variant(NamedTuple):
    """What an engine lets one choose before numbers, with checkpointing and attention."""

    choice: Choice
    numbers: Numbers

    @property
    def size(self) -> int:
        """How many strategies its numbers make."""
        return prod(len(values) for values in self.numbers.values())


class Configuration(NamedTuple):
    """A variant with a micro-batch; its numbers are free."""

    space: Space
    variant: Variant
    micro_batch: int

    def at(self, **values: Any) -> Job:
        """With these numbers, the others at their defaults."""
        space, variant = self.space, self.variant
        sized = {"micro_batch": self.micro_batch, "grad_accum": self.micro_steps}
        defaults = {name: several[0] for name, several in variant.numbers.items()}
        return space.job.at(**{**variant.choice, **sized, **defaults, **values})

    @property
    def micro_steps(self) -> int:
        return self.space.per_gpu // self.micro_batch

    @property
    def engine(self) -> TrainingEngine:
        return engine_of(self.space.job)

    @property
    def computes(self) -> tuple[Any, ...]:
        """What decides the seconds of computing alone."""
        choice = self.variant.choice
        return self.at().strategy.runs_zero_linear, choice["checkpointing"], choice["attention"], self.micro_batch

    @property
    def family(self) -> Hashable:
        """All that it has in common with those that differ in how many layers run again."""
        choice = dict(self.variant.choice)
        if not self.at().strategy.recomputing.attention:
            del choice["checkpointing"]
        return self.micro_batch, *choice.items(), *self.variant.numbers.items()

    @property
    def minimum_memory(self) -> Job:
        """With the numbers that hold least between steps."""
        return next(self.lean())

    def lean(self) -> Iterator[Job]:
        """With the numbers that may need least; the first of them hold least."""
        for values in self.engine.lean(self.variant.choice, self.variant.numbers):
            yield self.at(**values)

    def fast(self, has_room: Callable[[Job], bool]) -> Iterator[Job]:
        """With the numbers that may be fastest, whether they fit or not; `has_room`: whether what a job holds fits."""
        minimum = self.minimum_memory
        engine, numbers = self.engine, self.variant.numbers
        for values in engine.fast(self.at(), numbers, lambda values: has_room(minimum.at(**values))):
            yield self.at(**values)

    def starts(self) -> Iterator[tuple[list[list[Job]], bool]]:
        """Where refining its numbers may begin, and whether that is monotone, as `Start` has it."""
        on_host = self.variant.numbers.get(OPTIMIZER, ())[:0:-1]
        least_last = [Start([[{OPTIMIZER: share} for share in on_host]], monotone=True)] if on_host else []
        for start in [*self.engine.starts(self.variant.choice, self.variant.numbers), *least_last]:
            yield [[self.at(**values) for values in row] for row in start.rows], start.monotone

    def with_less_on_host(self, job: Job) -> Iterator[Job]:
        """The job with less and less of the optimizer on the host (Twin-Flow)."""
        for optimizer in self.variant.numbers.get(OPTIMIZER, ())[1:]:
            yield job.at(offload_optimizer=optimizer)

    def tie_break(self, job: Job) -> tuple[Any, ...]:
        """Smaller is simpler: no offload, the lowest stage, no checkpointing, fused attention, a larger micro-batch,
        default numbers.
        """
        strategy, kind = job.strategy, job.strategy.checkpointing
        devices = [part for part in (strategy.offload_optimizer, strategy.offload_param) if part]
        offload = sum({"cpu": 1, "nvme": 3}[part.device] + (part.ratio < 1) for part in devices)
        again = [*SIMPLEST_CHECKPOINTING, kind].index(kind)
        places = [_place(values, getattr(strategy, name)) for name, values in self.variant.numbers.items()]
        return (
            offload, strategy.stage, strategy.hpz_partition_size, again, kind, strategy.attention == "eager",
            -strategy.micro_batch, sum(place > 0 for place in places), *places,
        )  # fmt: skip


def _place(values: tuple[Any, ...], value: Any) -> int:
    return values.index(value) if value in values else len(values)


class Space(NamedTuple):
    job: Job
    per_gpu: int
    """Sequences that a GPU sees in a step."""
    sizes: tuple[int, ...]
    """Micro-batches, the largest first; each divides them."""
    variants: tuple[Variant, ...]

    @property
    def size(self) -> int:
        """How many strategies there are."""
        return len(self.sizes) * sum(variant.size for variant in self.variants)

    def configurations(self) -> Iterator[Configuration]:
        """Each variant with each micro-batch."""
        for variant, size in product(self.variants, self.sizes):
            yield Configuration(self, variant, size)


def space(job: Job, fixed: Values, per_gpu: int) -> Space:
    """What the fixed fields leave free."""
    engine = engine_of(job)
    variants = tuple(Variant(choice, engine.numbers(job, choice, fixed)) for choice in choices(job, fixed))
    known = job.model.micro_batches
    sizes = [size for size in micro_batches(per_gpu, fixed) if not known or size in known or "micro_batch" in fixed]
    return Space(job, per_gpu, tuple(sizes), variants)


def choices(job: Job, fixed: Values) -> Iterator[Choice]:
    """Every choice of the engine with every checkpointing and attention, that the fixed fields leave free."""
    for choice in engine_of(job).choices(job, fixed):
        for kind, attention in product(checkpointing(job.at(**choice), fixed), attentions(job, fixed)):
            yield {**choice, "checkpointing": kind, "attention": attention}


def attentions(job: Job, fixed: Values) -> list[str]:
    """Those that transformers runs without another package: torch's kernels, or its own operators (eager).

    A job with any other keeps it.
    """
    is_free = "attention" not in fixed and job.model.has_sdpa and job.strategy.attention in WITHOUT_PACKAGE
    known = job.model.attentions or WITHOUT_PACKAGE
    return [each for each in WITHOUT_PACKAGE if each in known] if is_free else [job.strategy.attention]


def checkpointing(job: Job, fixed: Values) -> list[str]:
    """Those that the model can run with, and that the training script can be told of."""
    if "checkpointing" in fixed:
        return [fixed["checkpointing"]]
    layers = job.model.shape.layers
    known = filter(job.workload.script.runs, CHECKPOINTING)
    return [kind for kind in known if _runs_with(job.at(checkpointing=kind), kind, layers)]


def _runs_with(job: Job, kind: str, layers: int) -> bool:
    every = job.strategy.recomputing.every
    if every >= max(layers, 2) or (kind == "selective" and job.strategy.flash):
        return False
    try:
        recomputing.check(job)
    except ContradictionError:
        return False
    return True


def micro_batches(per_gpu: int, fixed: Values) -> list[int]:
    """Micro-batches that divide the sequences a GPU sees per step, largest first."""
    if "micro_batch" in fixed:
        return [fixed["micro_batch"]]
    accum = fixed.get("grad_accum")
    if accum:
        return [per_gpu // accum]
    return [size for size in range(min(per_gpu, MOST_SIZES), 0, -1) if per_gpu % size == 0]
