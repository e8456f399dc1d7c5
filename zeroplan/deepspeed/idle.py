"""Why a key of ds_config.json changes no number of a job, as far as the table of keys knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zeroplan.deepspeed.difference import BATCH, Difference
from zeroplan.deepspeed.key_cost import UNCOUNTED
from zeroplan.deepspeed.keys import OPEN_SECTIONS
from zeroplan.deepspeed.roles import NAMED, Role, role
from zeroplan.deepspeed.uncounted import SYNCHRONIZING
from zeroplan.deepspeed.values import AUTO
from zeroplan.specs.checkpointing import DEEPSPEED
from zeroplan.specs.job import Job

NOT_COUNTED = "not counted"
"""How the reason of a key begins that may well change something."""
OFFLOADS = {"offload_optimizer": "optimizer", "offload_param": "parameters"}


def reason(one: Difference, jobs: tuple[Job, Job]) -> str:
    """In a clause, for a job before and after all changes; "not counted: ..." where the key may well do something."""
    known, strategies = one.known, tuple(job.strategy for job in jobs)
    if known is None:
        handed_on = one.path.rpartition(".")[0] in OPEN_SECTIONS
        return "no number here depends on it" if handed_on else "DeepSpeed knows no such key here and passes over it"
    left_out = [said for strategy in strategies for said in strategy.not_counted if said.startswith(one.path)]
    if one.path in SYNCHRONIZING:
        return f"{NOT_COUNTED}: DeepSpeed waits for the card at each of its marks"
    if known.name in UNCOUNTED or left_out or role(one.path) == Role(NAMED):
        return f"{NOT_COUNTED}: it moves bytes that no number here has in it"
    if not known.stages:
        return "DeepSpeed 0.19.8 does not act on it"
    if not any(strategy.stage in known.stages for strategy in strategies):
        stages = sorted({strategy.stage for strategy in strategies})
        return f"no effect at stage {_either(stages)}, only at {_either(known.stages)}"
    return _where_it_stands(one, strategies) or _value(one, strategies, moves=known.moves_bytes)


def _either(stages: Sequence[int]) -> str:
    return " or ".join(map(str, stages))


def _where_it_stands(one: Difference, strategies: tuple[Any, ...]) -> str:
    """Where a section stands that is off in both."""
    section = one.path.rpartition(".")[0]
    name = section.rpartition(".")[2]
    if name in OFFLOADS and not any(getattr(strategy, name) for strategy in strategies):
        return f"{OFFLOADS[name]} are not offloaded" if name == "offload_param" else "the optimizer is not offloaded"
    if section == "aio" and not any(_swaps(strategy) for strategy in strategies):
        return "nothing is on NVMe"
    if section == "activation_checkpointing" and not any(one.checkpointing == DEEPSPEED for one in strategies):
        return "the model does not call deepspeed.checkpointing (--checkpointing deepspeed: as if it did)"
    return ""


def _swaps(strategy: Any) -> bool:
    parts = strategy.offload_optimizer, strategy.offload_param
    return any(part is not None and part.device == "nvme" for part in parts)


def _value(one: Difference, strategies: tuple[Any, ...], *, moves: bool) -> str:
    if one.path in BATCH and strategies[0].micro_batch == strategies[1].micro_batch:
        return "both come to the same micro-batch and accumulation"
    if not moves:
        return "it moves no bytes"
    if AUTO in (one.a, one.b):
        return '"auto" is filled with the same here'
    return "nothing depends on it for this model on these GPUs"
