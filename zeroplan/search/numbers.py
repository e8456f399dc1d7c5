"""Values of each number of a strategy: thresholds and buckets in elements, what overlaps, shares of the optimizer.

The grid is coarse: a step's seconds are known within some per cent, and values between these move it by less.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload

Numbers = dict[str, tuple[Any, ...]]
"""Values of each number, the default first: the job's own, which is DeepSpeed's where nobody says otherwise."""
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


def numbers(job: Job, choice: dict[str, Any], fixed: dict[str, Any]) -> Numbers:
    """What a choice leaves free; what is fixed has one value.

    What persists is as the Trainer fills it: none at all would spare a step's small gathers one by one, but what it
    costs to unpack them with the others nobody has measured. Stage 2 keeps gradients side by side: freed one by one
    during backward they leave holes, whose bytes nobody has measured. DeepSpeed 0.19.8 gathers a group's whole
    partition after the step whatever allgather_bucket_size says, so its default stays.
    """
    stage, hidden = choice["stage"], job.model.shape.hidden
    if stage == 0:
        return {}
    values: Numbers = {"reduce_bucket_size": (job.strategy.reduce_bucket_size, *REDUCE, hidden * hidden)}
    if stage == 3:
        values |= _of_stage_3(job, choice, fixed)
    values["overlap_comm"] = (True, False) if stage < 3 else (True,)  # stage 3 holds no byte more for it
    if stage != 2:
        values["contiguous_gradients"] = (True, False)
    return {name: (fixed[name],) if name in fixed and name != OPTIMIZER else tuple(dict.fromkeys(several))
            for name, several in values.items()}  # fmt: skip


OPTIMIZER = "offload_optimizer"


def _of_stage_3(job: Job, choice: dict[str, Any], fixed: dict[str, Any]) -> Numbers:
    strategy, hidden = job.strategy, job.model.shape.hidden
    optimizer, parameters = choice[OPTIMIZER], choice["offload_param"]
    gathers = job.ranks > 1 or parameters is not None
    values: Numbers = {"param_persistence_threshold": (10 * hidden,)}
    if gathers:
        values["prefetch_bucket_size"] = (strategy.prefetch_bucket_size, *PREFETCH, int(0.9 * hidden * hidden))
    if gathers and not (parameters and parameters.device == "nvme"):  # from NVMe as many as there are buffers for
        values["max_live_parameters"] = (strategy.max_live_parameters, *LIVE)
        values["max_reuse_distance"] = (strategy.max_reuse_distance, *REUSE)
    if optimizer and optimizer.device == "cpu" and OPTIMIZER not in fixed:
        values[OPTIMIZER] = tuple(optimizer._replace(ratio=ratio) for ratio in RATIOS)
    if not (optimizer or parameters) and strategy.optimizer != "muon":  # host's bytes, matrices do not just shrink
        values["sub_group_size"] = (strategy.sub_group_size, *SUB_GROUP)
    return values


def defaults(values: Numbers) -> dict[str, Any]:
    """Each number's default."""
    return {name: several[0] for name, several in values.items()}


def minimum_memory(values: Numbers) -> dict[str, Any]:
    """Of each number the value that holds least: the smallest, and all of the optimizer on the host."""
    return {name: _leanest(several) for name, several in values.items()}


def _leanest(several: Iterable[Any]) -> Any:
    first, *_others = several = tuple(several)
    return first if isinstance(first, Offload) else min(several)
