"""The batch and the sequence length that were typed: what is stated, what follows from it, and what is usual."""

from __future__ import annotations

from typing import Any

from zeroplan.cli.options import Options
from zeroplan.errors import ContradictionError
from zeroplan.specs.model import Model
from zeroplan.units import read_integer

DEFAULT_SEQ = 2048
"""Tokens, of a model with at least as many positions."""


def batch(fixed: dict[str, Any], total: int | None, gpus: int, said_by: str, *, total_alone: bool) -> dict[str, int]:
    """train_batch_size = micro-batch × accumulation × GPUs, as DeepSpeed solves it (runtime/config.py).

    With neither stated both stay open; what is returned is for an estimate. A config that states the total alone
    means one micro-step to DeepSpeed; any other total is accumulated over micro-batches of one.
    """
    if total is None:
        return {}
    micro, accum = fixed.get("micro_batch"), fixed.get("grad_accum")
    divisor = gpus * (micro or 1) * (accum or 1)
    if total % divisor or (micro and accum and total != divisor):
        known = {"micro-batch": micro, "accumulation": accum}
        parts = " × ".join([f"{gpus} GPUs", *(f"{name} {count}" for name, count in known.items() if count)])
        possible = divisor if micro and accum else max(divisor, round(total / divisor) * divisor)
        expected = f"{divisor}" if micro and accum else f"a multiple of {divisor}"
        raise ContradictionError(f"{said_by}: found {total}, expected {expected} ({parts}); write {said_by} {possible}")
    if micro and not accum:
        fixed["grad_accum"] = total // divisor
    elif accum and not micro:
        fixed["micro_batch"] = total // divisor
    elif not micro and not accum:
        return {"micro_batch" if total_alone else "grad_accum": total // divisor}
    return {}


def read_seq(options: Options, model: Model, assumed: list[str]) -> int:
    """Tokens as stated, or as many as usual and no more than the model has positions for (0: it has no such limit)."""
    typed, positions = number(options.seq, "--seq", "2048"), 0 if model.inferred else model.shape.positions
    seq = typed or min(DEFAULT_SEQ, positions or DEFAULT_SEQ)
    if typed is None:
        why = f", all of the model's positions, under the usual {DEFAULT_SEQ}" if seq < DEFAULT_SEQ else ""
        assumed.append(f"sequence {seq}{why} (--seq)")
    elif positions and seq > positions:
        stops = ", which it has learned: as it is, its training stops there" if _learns_positions(model) else ""
        assumed.append(f"sequence {seq} is beyond the model's {positions} positions{stops}")
    return seq


def _learns_positions(model: Model) -> bool:
    """Each position has a row of a table (GPT-2, OPT, BERT); rotary ones and ALiBi go on beyond."""
    tables = ("wpe.weight", "position_embeddings.weight", "embed_positions.weight")
    return any(tensor.name.endswith(tables) for tensor in model.tensors)


def number(text: str | None, typed: str, example: str = "8") -> int | None:
    return None if text is None else read_integer(text, typed, example)
