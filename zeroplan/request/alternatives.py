"""`zeroplan recommend --why WHAT`: the alternatives to a plan that have a name, by the words that the screens use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from zeroplan.errors import ContradictionError, UnknownNameError, ZeroplanError
from zeroplan.specs.checkpointing import is_checkpointing
from zeroplan.specs.strategy import ATTENTION, STAGES, Offload, Strategy
from zeroplan.units import read_count, read_integer
from zeroplan.why import Constraint

OFFLOADS = {"optimizer": "offload_optimizer", "param": "offload_param"}
NAMES = (
    *(f"zero-{stage}" for stage in STAGES),
    "offload", "no-offload", "optimizer-cpu", "optimizer-nvme", "optimizer-gpu", "param-cpu", "param-nvme", "param-gpu",
    "micro-batch-4", "checkpointing-none", "checkpointing-selective", "checkpointing-full", "checkpointing-every-4",
    "attention-eager", "attention-sdpa", "attention-flash-attention-2", "overlap", "no-overlap", "buckets-5e8",
    "prefetch-5e7",
)  # fmt: skip
"""Numbers stand for any other."""
TRAINED = ("full", "full-training", "lora", "qlora", "quantize", "nf4", "fp4", "int8")
"""Ways to train, which are no alternatives to a plan."""


def read_constraints(typed: Sequence[str]) -> list[Constraint]:
    """Each once. Raises `ZeroplanError` for what cannot be meant."""
    return list({constraint.name: constraint for constraint in map(read_constraint, typed)}.values())


def read_constraint(typed: str) -> Constraint:
    """What one name asks after; `ZeRO-2`, `full checkpointing` and `optimizer on cpu` are zero-2 and so on."""
    name = _plain(typed)
    if name in TRAINED:
        raise ContradictionError(
            f"--why {typed}: what trains is not a plan's to choose; write --method full,lora,qlora, whose plans stand "
            "side by side with their bytes and seconds"
        )
    constraint = _stage(name) or _offload(name) or _numbered(name, typed) or _overlap(name) or _attention(name)
    kind = name.removeprefix("checkpointing-")
    if constraint is None and name.startswith("checkpointing-") and is_checkpointing(kind):
        constraint = Constraint(name, {"checkpointing": kind}, lambda strategy: strategy.checkpointing == kind)
    if constraint is None:
        raise UnknownNameError("alternative behind --why", typed, NAMES, "numbers may be others")
    return constraint


def _plain(typed: str) -> str:
    """As screens say it, or as it is typed elsewhere, in the one form."""
    name = re.sub(r"[\s_]+", "-", typed.strip().lower())
    name = re.sub(r"^(optimizer|param)(?:eters|s)?-(?:on-)?(?:the-)?(cpu|nvme|gpu)$", r"\1-\2", name)
    name = re.sub(r"^(?:(no)|(selective|full|every-[0-9]+))-checkpointing$",
                  lambda match: f"checkpointing-{match[2] or 'none'}", name)  # fmt: skip
    name = re.sub(r"^(eager|sdpa|flash)-attention$|^(eager|sdpa|flash(?:-attention-[23])?)$",
                  lambda match: f"attention-{match[1] or match[2]}", name)  # fmt: skip
    name = re.sub("^attention-flash$", "attention-flash-attention-2", name)
    return re.sub(r"^zero([0-9])$", r"zero-\1", name)


def _stage(name: str) -> Constraint | None:
    match = re.fullmatch(r"zero-([0-3])", name)
    if not match:
        return None
    stage = int(match[1])
    return Constraint(name, {"stage": stage}, lambda strategy: strategy.stage == stage)


def _offload(name: str) -> Constraint | None:
    both = tuple(OFFLOADS.values())
    if name == "no-offload":
        return Constraint(name, dict.fromkeys(both), lambda strategy: not _offloaded(strategy))
    if name == "offload":
        return Constraint(name, {}, _offloaded, both, lambda choice: any(choice[field] for field in both))
    part, _, device = name.partition("-")
    if part not in OFFLOADS or device not in ("cpu", "nvme", "gpu"):
        return None
    field = OFFLOADS[part]
    if device == "gpu":
        return Constraint(name, {field: None}, lambda strategy: getattr(strategy, field) is None)

    def there(offload: Offload | None) -> bool:
        return offload is not None and offload.device == device

    def has(strategy: Strategy) -> bool:
        return there(getattr(strategy, field))

    if name == "optimizer-cpu":  # any share of it
        return Constraint(name, {}, has, (field,), lambda choice: there(choice[field]))
    return Constraint(name, {field: Offload(device=device)}, has)


def _offloaded(strategy: Strategy) -> bool:
    return strategy.offload_optimizer is not None or strategy.offload_param is not None


def _numbered(name: str, typed: str) -> Constraint | None:
    match = re.fullmatch(r"(micro-batch|buckets|prefetch)-([0-9].*)", name)
    if not match:
        return None
    kind, what = match[1], f"--why {typed}"
    try:
        if kind == "micro-batch":
            size = read_integer(match[2], what, "")
        else:
            size = read_count(match[2].replace(",", ""), what)
    except ZeroplanError:
        return None
    if kind == "micro-batch":
        return Constraint(name, {"micro_batch": size}, lambda one: one.micro_batch == size, ("grad_accum",))
    field, least = ("reduce_bucket_size", 1) if kind == "buckets" else ("prefetch_bucket_size", 3)

    def has(strategy: Strategy) -> bool:
        return strategy.stage >= least and getattr(strategy, field) == size

    return Constraint(name, {field: size}, has, keeps=lambda choice: _stage_of(choice) >= least)


def _attention(name: str) -> Constraint | None:
    kind = name.removeprefix("attention-").replace("-", "_")
    if not name.startswith("attention-") or kind not in ATTENTION:
        return None
    return Constraint(name, {"attention": kind}, lambda strategy: strategy.attention == kind)


def _overlap(name: str) -> Constraint | None:
    if name not in ("overlap", "no-overlap"):
        return None
    on = name == "overlap"

    def has(strategy: Strategy) -> bool:
        return (strategy.stage > 0 and strategy.overlaps) is on

    return Constraint(name, {"overlap_comm": on}, has, keeps=lambda choice: _stage_of(choice) > 0)


def _stage_of(choice: dict[str, Any]) -> int:
    return int(choice["stage"])
