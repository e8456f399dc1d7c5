"""What a search may choose of DeepSpeed 0.19.8: stage, offload and secondary partitions, and the numbers of each.

Values of each number: thresholds and buckets in elements, what overlaps, shares of the optimizer. The grid is coarse: a
step's seconds are known within some per cent, and values between these move it by less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from zeroplan.costs.deepspeed import muon, nvme_swap, partitions
from zeroplan.costs.deepspeed.partitions import secondary_ranks
from zeroplan.costs.engine import Choice, Numbers, Start, Values
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OFFLOADABLE
from zeroplan.specs.strategy import STAGES, Offload

OPTIMIZER = "offload_optimizer"
CPU_ADAM = ("adam", "adamw")
"""Optimizers of which a share may stay on the GPU (Twin-Flow): DeepSpeedCPUAdam's (runtime/zero/stage3.py:__init__)."""
BUCKETS, KEPT = ("reduce_bucket_size", "prefetch_bucket_size"), ("max_live_parameters", "max_reuse_distance")
LARGER_IS_FASTER = ("prefetch_bucket_size", *KEPT)
GAINS_BY_ROOM = (*BUCKETS, *KEPT, OPTIMIZER)
MAKES_ROOM = ("contiguous_gradients", *BUCKETS, *KEPT)
SOME_KEPT = 2_000_000_000
"""Elements of parameters that stay gathered, between the default and all."""
LEAN_BUCKETS = (1_000_000_000, 300_000_000, 100_000_000, 10_000_000, 1_000_000)
FAST_BUCKETS = (100_000_000, 20_000_000, 1_000_000)
STARTS = (2_000_000_000, 1_000_000_000, 500_000_000, 200_000_000, 100_000_000, 50_000_000, 10_000_000, 1_000_000)
"""Elements of reduce buckets: those that may need least, that may be fastest, and that a refinement begins with."""
M, G = 10**6, 10**9
REDUCE = (
    M, 2 * M, 3 * M, 5 * M, 7 * M, 10 * M, 15 * M, 20 * M, 30 * M, 50 * M, 70 * M, 100 * M, 150 * M, 200 * M,
    250 * M, 300 * M, 400 * M, 500 * M, 700 * M, 800 * M, G, 1500 * M, 2 * G,
)  # fmt: skip
PREFETCH = (10 * M, 50 * M, 500 * M)
LIVE = (100 * M, 500 * M, G, 2 * G, 10 * G)
REUSE = (0, G, 10 * G)
SUB_GROUP = (10 * M, 100 * M, 300 * M, G)
RATIOS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
"""Shares of the optimizer on the host, at stage 3 (Twin-Flow)."""


def choices(job: Job, fixed: Values) -> Iterator[Choice]:
    """Every combination of stage, offload and secondary partitions that runs and that the fixed fields leave free."""
    stages = [fixed["stage"]] if "stage" in fixed else list(STAGES)
    optimizers, parameters = (_offloads(job, fixed, name) for name in (OPTIMIZER, "offload_param"))
    for stage, params in product(stages, parameters):
        for optimizer in optimizers:
            if _runs(job, stage, optimizer, params, fixed):
                choice = {"stage": stage, "offload_optimizer": optimizer, "offload_param": params}
                for more in _at_stage_3(job.at(**choice), fixed):
                    yield {**choice, **more}


def _offloads(job: Job, fixed: Values, name: str) -> list[Offload | None]:
    if name in fixed:
        return [fixed[name]]
    nvme = [Offload(device="nvme")] if job.cluster.nvme else []
    return [None, Offload(device="cpu"), *nvme]


def _runs(job: Job, stage: int, optimizer: Offload | None, params: Offload | None, fixed: Values) -> bool:
    """Whether DeepSpeed does anything with that combination, and whether it is worth considering unasked."""
    if (params and stage < 3) or ("stage" not in fixed and muon.refusal(job.at(stage=stage))):
        return False
    there = job.at(stage=stage, offload_param=params)
    if "offload_param" not in fixed and (nvme_swap.reads_twice(there) or partitions.refusal(there)):
        return False
    if optimizer is None:  # who says none for the optimizer means none at all
        unasked = params is None or ("offload_optimizer" not in fixed and params.device == "cpu")
        return unasked or fixed.get("offload_param") is not None
    if job.strategy.optimizer not in OFFLOADABLE and not fixed.get("offload_optimizer"):
        return False
    return stage == 3 or (stage > 0 and optimizer.device == "cpu")


def _at_stage_3(job: Job, fixed: Values) -> Iterator[Choice]:
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


def numbers(job: Job, choice: Choice, fixed: Values) -> Numbers:
    """What a choice leaves free; what is fixed has one value.

    What persists is as the Trainer fills it: none at all would spare a step's small gathers one by one, but what it
    costs to unpack them with the others nobody has measured. Stage 2 keeps gradients side by side: freed one by one
    during backward they leave holes, whose bytes nobody has measured. DeepSpeed 0.19.8 gathers a group's whole
    partition after the step whatever allgather_bucket_size says, so its default stays.
    """
    stage, hidden = choice["stage"], job.model.shape.hidden
    if stage == 0:
        return {}
    buckets: tuple[int, ...] = (job.strategy.reduce_bucket_size, *REDUCE, hidden * hidden)
    if job.model.frozen:  # one larger than what trains is memory alone
        buckets = tuple(min(size, job.model.trainable_parameters) for size in buckets)
    values: Numbers = {"reduce_bucket_size": buckets}
    if stage == 3:
        values |= _of_stage_3(job, choice, fixed)
    values["overlap_comm"] = (True, False) if stage < 3 else (True,)  # stage 3 holds no byte more for it
    if stage != 2:
        values["contiguous_gradients"] = (True, False)
    return {name: (fixed[name],) if name in fixed and name != OPTIMIZER else tuple(dict.fromkeys(several))
            for name, several in values.items()}  # fmt: skip


def _of_stage_3(job: Job, choice: Choice, fixed: Values) -> Numbers:
    strategy, hidden = job.strategy, job.model.shape.hidden
    optimizer, parameters = choice[OPTIMIZER], choice["offload_param"]
    gathers = job.ranks > 1 or parameters is not None
    values: Numbers = {"param_persistence_threshold": (10 * hidden,)}
    if gathers:
        values["prefetch_bucket_size"] = (strategy.prefetch_bucket_size, *PREFETCH, int(0.9 * hidden * hidden))
    if gathers and not (parameters and parameters.device == "nvme"):  # from NVMe as many as there are buffers for
        values["max_live_parameters"] = (strategy.max_live_parameters, *LIVE)
        values["max_reuse_distance"] = (strategy.max_reuse_distance, *REUSE)
    adam = strategy.optimizer in CPU_ADAM and not strategy.runs_torch_adam
    if optimizer and optimizer.device == "cpu" and adam and OPTIMIZER not in fixed:
        values[OPTIMIZER] = tuple(optimizer._replace(ratio=ratio) for ratio in RATIOS)
    if not (optimizer or parameters) and strategy.optimizer != "muon":  # host's bytes, matrices do not just shrink
        values["sub_group_size"] = (strategy.sub_group_size, *SUB_GROUP)
    return values


def lean(choice: Choice, numbers: Numbers) -> Iterator[Values]:
    """The smallest; below stage 3, where gradients are freed as they are copied into a bucket that has room for them,
    buckets of other sizes may need less.
    """
    least = {name: _leanest(several) for name, several in numbers.items()}
    yield least
    if choice["stage"] < STAGES[-1] and numbers:
        for together, size in product(numbers.get("contiguous_gradients", (True,)), LEAN_BUCKETS):
            if size in numbers["reduce_bucket_size"]:
                yield {"contiguous_gradients": together, "reduce_bucket_size": size}


def _leanest(several: Iterable[Any]) -> Any:
    """The smallest, and all of the optimizer on the host."""
    first, *_others = several = tuple(several)
    return first if isinstance(first, Offload) else min(several)


def fast(job: Job, numbers: Numbers, has_room: Callable[[Values], bool]) -> Iterator[Values]:
    """The largest, and as little on the host as the card has room for; smaller buckets, of which the last is reduced
    sooner; gradients that do not lie together, where all-reduce sends each to its own rank alone.
    """
    values = _largest(numbers, BUCKETS + KEPT)
    if shares := numbers.get(OPTIMIZER):
        values[OPTIMIZER] = next((share for share in shares[::-1] if has_room({OPTIMIZER: share})), shares[0])
    yield values
    buckets = numbers.get("reduce_bucket_size", ())
    for size in [size for size in buckets if size in FAST_BUCKETS] or buckets:
        yield {**values, "reduce_bucket_size": size}
    if False in numbers.get("contiguous_gradients", ()) and not job.strategy.scatters:
        yield {**values, "contiguous_gradients": False}


def starts(choice: Choice, numbers: Numbers) -> Iterator[Start]:
    """Smaller and smaller reduce buckets, by what stays gathered, or by whether gradients lie together."""
    if choice["stage"] < STAGES[-1]:
        for together in numbers.get("contiguous_gradients", (True,)):
            yield Start([_with_buckets(numbers, {"contiguous_gradients": together})], monotone=False)
        return
    apart = {"contiguous_gradients": False} if False in numbers.get("contiguous_gradients", ()) else {}
    some = {KEPT[0]: SOME_KEPT} if SOME_KEPT in numbers.get(KEPT[0], ()) else {}
    largest = [_largest(numbers, names) for names in (KEPT, KEPT[:1])]
    thresholds = (*largest, some, {}) if KEPT[0] in numbers else ({},)
    prefetch = _largest(numbers, BUCKETS[1:])
    yield Start([_with_buckets(numbers, prefetch | values | apart) for values in thresholds], monotone=True)


def _with_buckets(numbers: Numbers, values: Values) -> list[Values]:
    several = numbers.get("reduce_bucket_size")
    if not several:
        return [values]
    sizes = sorted({size for size in several if size in STARTS} | {min(several)}, reverse=True)
    return [{**values, "reduce_bucket_size": size} for size in sizes]


def _largest(numbers: Numbers, names: Iterable[str]) -> Values:
    return {name: max(numbers[name]) for name in names if name in numbers}
