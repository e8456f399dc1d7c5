"""All strategies that a request leaves open: choices of which each is its own job, and numbers within them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Any

from zeroplan.costs import recomputing
from zeroplan.costs.deepspeed import muon
from zeroplan.costs.deepspeed.partitions import below_ratio, secondary_ranks
from zeroplan.errors import ContradictionError
from zeroplan.record import NamedTuple
from zeroplan.search.numbers import PERSISTENCE, SUB_GROUP, Numbers, numbers
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OFFLOADABLE
from zeroplan.specs.strategy import STAGES, Offload, Strategy

WITHOUT_PACKAGE = ("sdpa", "eager")
CHECKPOINTING = ("none", "selective", "full", "every-2", "every-3", "every-4", "every-8")
AGAIN = ("none", "full", "selective")
"""Checkpointing, the simplest first."""
RATIOS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
MOST_SIZES = 1024
ORDER = (
    "overlap_comm", PERSISTENCE, "max_live_parameters", "prefetch_bucket_size", "max_reuse_distance",
    "reduce_bucket_size", "contiguous_gradients",
)  # fmt: skip
"""Numbers, as a search settles them. DeepSpeed 0.19.8 gathers a group's whole partition after the step whatever
allgather_bucket_size says: only the usual one is looked at. Smaller sub-groups come up where larger ones do not fit.
"""


def timeless(strategy: Strategy) -> frozenset[str]:
    """Those that change no second: stage 3 scatters the same buckets, whether gradients lie together or not."""
    return frozenset({"contiguous_gradients"} if strategy.stage == STAGES[-1] and strategy.scatters else ())


BYTELESS: tuple[frozenset[str], ...] = (*[frozenset()] * 3, frozenset({"overlap_comm"}))
"""By stage those that change no byte of a GPU: only stages 1 and 2 have a second buffer for what overlaps."""


class Branch(NamedTuple):
    """Choices that stand before numbers."""

    choice: dict[str, Any]
    numbers: Numbers

    def combinations(self, *names: str) -> Iterator[dict[str, Any]]:
        """Of these numbers' values, in the order of their usualness."""
        known = [name for name in names if name in self.numbers]
        for values in product(*(self.numbers[name] for name in known)):
            yield dict(zip(known, values, strict=True))

    @property
    def open(self) -> tuple[str, ...]:
        """Numbers, in the order in which they are settled."""
        return tuple(name for name in ORDER if name in self.numbers)

    def usual(self, names: Iterable[str]) -> dict[str, Any]:
        """Of these numbers each one's usual value."""
        return {name: self.numbers[name][0] for name in names}

    def loosest(self, names: Iterable[str]) -> dict[str, Any]:
        """Of these numbers, what moves least: nothing runs slower for a larger one, unless more parameters persist."""
        return {name: max(self.numbers[name]) for name in names}

    def loosest_ones(self, names: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The same with each threshold of persistence that is open."""
        found = self.loosest(names)
        for threshold in self.numbers[PERSISTENCE] if PERSISTENCE in found else ():
            yield {**found, PERSISTENCE: threshold}
        if PERSISTENCE not in found:
            yield found

    def leanest(self, names: Iterable[str]) -> dict[str, Any]:
        """Of these numbers, what holds least, with the smallest sub-groups."""
        sub_group = (SUB_GROUP,) if SUB_GROUP in self.numbers else ()
        return {name: min(self.numbers[name]) for name in (*names, *sub_group)}

    def smaller_sub_group(self, job: Job) -> Job | None:
        """The next of those that are open."""
        sizes = self.numbers.get(SUB_GROUP, ())
        following = sizes[sizes.index(job.strategy.sub_group_size) + 1 :] if sizes else ()
        return job.at(**{SUB_GROUP: following[0]}) if following else None

    @property
    def size(self) -> int:
        """How many strategies its numbers make."""
        return prod(len(values) for values in self.numbers.values())


def simplicity(job: Job, branch: Branch) -> tuple[Any, ...]:
    """Smaller is simpler: no offload, the lowest stage, no checkpointing, fused attention, a larger micro-batch, and
    the usual numbers.
    """
    strategy, kind = job.strategy, job.strategy.checkpointing
    devices = [part for part in (strategy.offload_optimizer, strategy.offload_param) if part]
    offload = sum({"cpu": 1, "nvme": 3}[part.device] + (part.ratio < 1) for part in devices)
    again = AGAIN.index(kind) if kind in AGAIN else len(AGAIN)
    places = [values.index(getattr(strategy, name)) for name, values in branch.numbers.items()]
    return (
        offload, strategy.stage, strategy.hpz_partition_size, again, kind, strategy.attention == "eager",
        -strategy.micro_batch,
        sum(place > 0 for place in places), *places,
    )  # fmt: skip


Root = tuple[Branch, int]
"""A branch, and its micro-batch."""


class Space(NamedTuple):
    job: Job
    per_gpu: int
    """Sequences that a GPU sees in a step."""
    sizes: tuple[int, ...]
    """Micro-batches, the largest first; each divides them."""
    branches: tuple[Branch, ...]

    @property
    def size(self) -> int:
        """How many strategies there are."""
        return len(self.sizes) * sum(branch.size for branch in self.branches)

    def sized(self, branch: Branch, size: int) -> Job:
        """Without its numbers."""
        return self.job.at(**branch.choice, micro_batch=size, grad_accum=self.per_gpu // size)

    def roots(self) -> Iterator[Root]:
        """Each branch with each micro-batch."""
        yield from product(self.branches, self.sizes)

    def strategies(self) -> Iterator[Job]:
        """One after the other."""
        for branch, size in self.roots():
            job = self.sized(branch, size)
            for chosen in branch.combinations(*branch.numbers):
                yield job.at(**chosen)


def space(job: Job, settled: dict[str, Any], per_gpu: int, *, fine: bool = True) -> Space:
    """What the settled fields leave open; `fine`: with many values of buckets and thresholds."""
    branches = tuple(Branch(choice, numbers(job, choice, settled, fine=fine)) for choice in choices(job, settled))
    return Space(job, per_gpu, tuple(micro_batches(per_gpu, settled)), branches)


def choices(job: Job, settled: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of stage, offload and checkpointing that runs and that the settled fields leave open."""
    stages = [settled["stage"]] if "stage" in settled else list(STAGES)
    optimizers, parameters = (_offloads(job, settled, name) for name in ("offload_optimizer", "offload_param"))
    for stage, params in product(stages, parameters):
        for optimizer in _that_differ(job.at(stage=stage), optimizers):
            if not _runs(job, stage, optimizer, params, settled):
                continue
            with_offload = job.at(stage=stage, offload_optimizer=optimizer, offload_param=params)
            at_stage = list(_at_stage_3(with_offload, settled))
            for kind, attention in product(checkpointing(job, stage, settled), attentions(job, settled)):
                for more in at_stage:
                    yield {
                        "stage": stage, "checkpointing": kind, "attention": attention, "offload_optimizer": optimizer,
                        "offload_param": params, **more,
                    }  # fmt: skip


def _that_differ(job: Job, optimizers: list[Offload | None]) -> list[Offload | None]:
    """Of ratios that leave the same sub-groups to the GPU, at stage 3, the largest."""
    found: dict[Any, Offload | None] = {}
    for optimizer in optimizers:
        left = below_ratio(job.at(offload_optimizer=optimizer)) if optimizer and job.strategy.stage == 3 else 0
        found.setdefault((optimizer and (optimizer.device, left)), optimizer)
    return list(found.values())


def attentions(job: Job, settled: dict[str, Any]) -> list[str]:
    """Those that transformers runs without another package: torch's kernels, or its own operators (eager).

    A job with any other keeps it.
    """
    is_open = "attention" not in settled and job.model.has_sdpa and job.strategy.attention in WITHOUT_PACKAGE
    return list(WITHOUT_PACKAGE) if is_open else [job.strategy.attention]


def checkpointing(job: Job, stage: int, settled: dict[str, Any]) -> list[str]:
    """Those that the model can run with, and that the training script can be told of."""
    if "checkpointing" in settled:
        return [settled["checkpointing"]]
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


def _offloads(job: Job, settled: dict[str, Any], name: str) -> list[Offload | None]:
    if name in settled:
        return [settled[name]]
    ratios = RATIOS if name == "offload_optimizer" else (1.0,)
    nvme = [Offload(device="nvme")] if job.cluster.nvme else []
    return [None, *(Offload(device="cpu", ratio=ratio) for ratio in ratios), *nvme]


def _runs(job: Job, stage: int, optimizer: Offload | None, params: Offload | None, settled: dict[str, Any]) -> bool:
    """Whether DeepSpeed does anything with that combination, and whether it is worth considering unasked."""
    if (params and stage < 3) or ("stage" not in settled and muon.refusal(job.at(stage=stage))):
        return False
    if optimizer is None:  # who says none for the optimizer means none at all
        unasked = params is None or ("offload_optimizer" not in settled and params.device == "cpu")
        return unasked or settled.get("offload_param") is not None
    if job.strategy.optimizer not in OFFLOADABLE and not settled.get("offload_optimizer"):
        return False
    stated = settled.get("offload_optimizer") is not None
    if stage < 3:
        return stage > 0 and optimizer.device == "cpu" and (stated or optimizer.ratio == 1)
    return True


def _at_stage_3(job: Job, settled: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """As the Trainer fills its auto; secondary partitions within each node (hpZ) where there can be some, or none."""
    if job.strategy.stage < STAGES[-1]:
        yield {}
        return
    scatters = settled.get("reduce_scatter", job.strategy.scatters)
    if "hpz_partition_size" in settled:
        yield {"reduce_scatter": scatters, "hpz_partition_size": settled["hpz_partition_size"]}
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


def micro_batches(per_gpu: int, settled: dict[str, Any]) -> list[int]:
    """Micro-batches that divide the sequences a GPU sees per step, largest first."""
    if "micro_batch" in settled:
        return [settled["micro_batch"]]
    accum = settled.get("grad_accum")
    if accum:
        return [per_gpu // accum]
    return [size for size in range(min(per_gpu, MOST_SIZES), 0, -1) if per_gpu % size == 0]
