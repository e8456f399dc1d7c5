"""All strategies that a request leaves free: variants, each with its micro-batches and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from math import prod
from typing import Any, NamedTuple

from zeroplan.costs import recomputing
from zeroplan.costs.deepspeed import muon
from zeroplan.costs.deepspeed.partitions import secondary_ranks
from zeroplan.errors import ContradictionError
from zeroplan.search.numbers import OPTIMIZER, Numbers, defaults, minimum_memory, numbers
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OFFLOADABLE
from zeroplan.specs.strategy import STAGES, Offload

WITHOUT_PACKAGE = ("sdpa", "eager")
CHECKPOINTING = ("none", "selective", "full", "every-2", "every-3", "every-4", "every-8")
SIMPLEST_CHECKPOINTING = ("none", "full", "selective")
MOST_SIZES = 1024
BUCKETS, KEPT = ("reduce_bucket_size", "prefetch_bucket_size"), ("max_live_parameters", "max_reuse_distance")
SOME_KEPT = 2_000_000_000
"""Elements of parameters that stay gathered, between the default and all."""
LEAN_BUCKETS = (1_000_000_000, 300_000_000, 100_000_000, 10_000_000, 1_000_000)
FAST_BUCKETS = (100_000_000, 20_000_000, 1_000_000)
STARTS = (2_000_000_000, 1_000_000_000, 500_000_000, 200_000_000, 100_000_000, 50_000_000, 10_000_000, 1_000_000)
"""Elements of reduce buckets: those that may need least, that may be fastest, and that a refinement begins with."""


class Variant(NamedTuple):
    """Choices that stand before numbers: stage, offload, checkpointing, attention, secondary partitions."""

    choice: dict[str, Any]
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
        sized = {"micro_batch": self.micro_batch, "grad_accum": space.per_gpu // self.micro_batch}
        return space.job.at(**{**variant.choice, **sized, **defaults(variant.numbers), **values})

    @property
    def computes(self) -> tuple[Any, ...]:
        """What decides the seconds of computing alone; stage 3 runs a linear function of its own."""
        choice = self.variant.choice
        return choice["stage"] == STAGES[-1], choice["checkpointing"], choice["attention"], self.micro_batch

    @property
    def minimum_memory(self) -> Job:
        """With the numbers that hold least between steps."""
        return self.at(**minimum_memory(self.variant.numbers))

    def lean(self) -> Iterator[Job]:
        """With the numbers that need least: the smallest; below stage 3, where gradients are freed as they are copied
        into a bucket that has room for them, buckets of other sizes may need less.
        """
        yield self.minimum_memory
        numbers = self.variant.numbers
        if self.variant.choice["stage"] < STAGES[-1] and numbers:
            for together, size in product(numbers.get("contiguous_gradients", (True,)), LEAN_BUCKETS):
                if size in numbers["reduce_bucket_size"]:
                    yield self.at(contiguous_gradients=together, reduce_bucket_size=size)

    def fast(self, has_room: Callable[[Job], bool]) -> Iterator[Job]:
        """With the numbers that may be fastest, whether they fit or not: the largest, and as little on the host as the
        card has room for; with smaller buckets, of which the last is reduced sooner; with gradients that do not lie
        together, where all-reduce sends each to its own rank alone.
        """
        numbers = self.variant.numbers
        values = self._largest(BUCKETS + KEPT)
        if shares := numbers.get(OPTIMIZER):
            lean = self.minimum_memory
            values[OPTIMIZER] = next((one for one in shares[::-1] if has_room(lean.at(**{OPTIMIZER: one}))), shares[0])
        yield self.at(**values)
        for size in FAST_BUCKETS:
            if size in numbers.get("reduce_bucket_size", ()):
                yield self.at(**{**values, "reduce_bucket_size": size})
        if False in numbers.get("contiguous_gradients", ()) and not self.at().strategy.scatters:
            yield self.at(**values, contiguous_gradients=False)

    def starts(self) -> Iterator[list[Job]]:
        """Where refining its numbers may begin: with smaller and smaller reduce buckets, by what stays gathered, or by
        whether gradients lie together.
        """
        numbers = self.variant.numbers
        if self.variant.choice["stage"] < STAGES[-1]:
            for together in numbers.get("contiguous_gradients", (True,)):
                yield self._with_buckets({"contiguous_gradients": together})
            return
        apart = {"contiguous_gradients": False} if False in numbers.get("contiguous_gradients", ()) else {}
        some = {KEPT[0]: SOME_KEPT} if SOME_KEPT in numbers.get(KEPT[0], ()) else {}
        for kept in (*map(self._largest, (KEPT, KEPT[:1])), some, {}) if KEPT[0] in numbers else ({},):
            yield self._with_buckets(self._largest(BUCKETS[1:]) | kept | apart)

    def _with_buckets(self, values: dict[str, Any]) -> list[Job]:
        sizes = [size for size in STARTS if size in self.variant.numbers.get("reduce_bucket_size", ())]
        return [self.at(**values, reduce_bucket_size=size) for size in sizes] or [self.at(**values)]

    def _largest(self, names: Iterable[str]) -> dict[str, Any]:
        numbers = self.variant.numbers
        return {name: max(numbers[name]) for name in names if name in numbers}

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


def space(job: Job, fixed: dict[str, Any], per_gpu: int) -> Space:
    """What the fixed fields leave free."""
    variants = tuple(Variant(choice, numbers(job, choice, fixed)) for choice in choices(job, fixed))
    return Space(job, per_gpu, tuple(micro_batches(per_gpu, fixed)), variants)


def choices(job: Job, fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of stage, offload and checkpointing that runs and that the fixed fields leave free."""
    stages = [fixed["stage"]] if "stage" in fixed else list(STAGES)
    optimizers, parameters = (_offloads(job, fixed, name) for name in ("offload_optimizer", "offload_param"))
    for stage, params in product(stages, parameters):
        for optimizer in optimizers:
            if not _runs(job, stage, optimizer, params, fixed):
                continue
            with_offload = job.at(stage=stage, offload_optimizer=optimizer, offload_param=params)
            at_stage = list(_at_stage_3(with_offload, fixed))
            for kind, attention in product(checkpointing(job, stage, fixed), attentions(job, fixed)):
                for more in at_stage:
                    yield {
                        "stage": stage, "checkpointing": kind, "attention": attention, "offload_optimizer": optimizer,
                        "offload_param": params, **more,
                    }  # fmt: skip


def attentions(job: Job, fixed: dict[str, Any]) -> list[str]:
    """Those that transformers runs without another package: torch's kernels, or its own operators (eager).

    A job with any other keeps it.
    """
    is_free = "attention" not in fixed and job.model.has_sdpa and job.strategy.attention in WITHOUT_PACKAGE
    return list(WITHOUT_PACKAGE) if is_free else [job.strategy.attention]


def checkpointing(job: Job, stage: int, fixed: dict[str, Any]) -> list[str]:
    """Those that the model can run with, and that the training script can be told of."""
    if "checkpointing" in fixed:
        return [fixed["checkpointing"]]
    layers = job.model.shape.layers
    known = filter(job.workload.script.runs, CHECKPOINTING)
    return [kind for kind in known if _runs_with(job.at(stage=stage, checkpointing=kind), kind, layers)]


def _runs_with(job: Job, kind: str, layers: int) -> bool:
    every = job.strategy.recomputing.every
    if every >= max(layers, 2) or (kind == "selective" and job.strategy.flash):
        return False
    try:
        recomputing.check(job)
    except ContradictionError:
        return False
    return True


def _offloads(job: Job, fixed: dict[str, Any], name: str) -> list[Offload | None]:
    if name in fixed:
        return [fixed[name]]
    nvme = [Offload(device="nvme")] if job.cluster.nvme else []
    return [None, Offload(device="cpu"), *nvme]


def _runs(job: Job, stage: int, optimizer: Offload | None, params: Offload | None, fixed: dict[str, Any]) -> bool:
    """Whether DeepSpeed does anything with that combination, and whether it is worth considering unasked."""
    if (params and stage < 3) or ("stage" not in fixed and muon.refusal(job.at(stage=stage))):
        return False
    if optimizer is None:  # who says none for the optimizer means none at all
        unasked = params is None or ("offload_optimizer" not in fixed and params.device == "cpu")
        return unasked or fixed.get("offload_param") is not None
    if job.strategy.optimizer not in OFFLOADABLE and not fixed.get("offload_optimizer"):
        return False
    return stage == 3 or (stage > 0 and optimizer.device == "cpu")


def _at_stage_3(job: Job, fixed: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As the Trainer fills its auto; secondary partitions within each node (hpZ) where there can be some, or none."""
    if job.strategy.stage < STAGES[-1]:
        yield {}
        return
    scatters = fixed.get("reduce_scatter", job.strategy.scatters)
    if "hpz_partition_size" in fixed:
        yield {"reduce_scatter": scatters, "hpz_partition_size": fixed["hpz_partition_size"]}
        return
    yield {"reduce_scatter": scatters, "hpz_partition_size": 1}
    offload = job.strategy.offload_optimizer or job.strategy.offload_param
    if job.cluster.nodes > 1 < job.cluster.gpus_per_node and not offload and _may_have_secondary(job):
        yield {"reduce_scatter": scatters, "hpz_partition_size": job.cluster.gpus_per_node}


def _may_have_secondary(job: Job) -> bool:
    try:
        secondary_ranks(job.at(hpz_partition_size=job.cluster.gpus_per_node))
    except ContradictionError:
        return False
    return True


def micro_batches(per_gpu: int, fixed: dict[str, Any]) -> list[int]:
    """Micro-batches that divide the sequences a GPU sees per step, largest first."""
    if "micro_batch" in fixed:
        return [fixed["micro_batch"]]
    accum = fixed.get("grad_accum")
    if accum:
        return [per_gpu // accum]
    return [size for size in range(min(per_gpu, MOST_SIZES), 0, -1) if per_gpu % size == 0]
