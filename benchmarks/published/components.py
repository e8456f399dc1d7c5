"""Single layers and losses, measured alone."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmarks.published.levels import GIB
from benchmarks.published.rows import Row, UncomputableError
from benchmarks.published.shapes import shape
from zeroplan.formulas import fully_sharded, fused

SEQUENCES_MEASURED = 2
"""Galvatron measured two sequences where its profile counts one: with checkpointing a layer kept 2·T·h at T = 4,096."""


class Part(NamedTuple):
    row: Row
    predicted: float
    """GiB."""

    @property
    def error(self) -> float:
        if self.row.measured is None:
            raise UncomputableError("no value in value_gib")
        return self.predicted / _exact(self.row) - 1


def part(row: Row) -> Part:
    """Raises `UncomputableError` for a component without a form."""
    framework, what = row.lower("framework"), row.lower("what_was_measured")
    if "galvatron" in framework:
        return Part(row, (_states if "states" in what or "state memory" in what else _layer)(row) / GIB)
    if "kernel benchmark (huggingface)" in framework and "lm_head" in what:
        return Part(row, _loss(row) / GIB)
    raise UncomputableError(f"no form for {row.column('framework')!r}")


def _states(row: Row) -> int:
    return fully_sharded.shards(row.wanted("params") // row.tp, 16, row.degree("dp"))


def _layer(row: Row) -> int:
    if row.tp > 1:
        raise UncomputableError("with tensor parallelism a layer kept 32 MiB more whatever its degree: no form")
    one = shape(row)
    t = SEQUENCES_MEASURED * row.tokens
    if row.checkpointing == "full":
        return fused.checkpoints(t, one.hidden, 1, 1, 1)
    return fused.swiglu_layer(t, one.hidden, one.queries, one.keys, one.ffn, one.heads, 1)


def _loss(row: Row) -> int:
    """Forward and backward of the loss, alone or after the head, as Liger's benchmark runs them over and over.

    The input and its gradient of the last round stay; with a head, two of them are built and one has its gradient.
    """
    stated = re.search(r"(vocab size|b x t)=([0-9]+) \{(.*)\}", row.lower("seq"))
    if stated and stated[1] == "b x t":
        t, h, v = int(stated[2]), _stated(stated[3], "h"), _stated(stated[3], "v")
        return 3 * 2 * h * v + 2 * 2 * t * h + fused.cross_entropy_backward(t, v, 2)
    if stated:
        t, v = _stated(stated[3], "b") * _stated(stated[3], "t"), int(stated[2])
        return 2 * 4 * t * v + fused.cross_entropy_backward(t, v, 4)
    raise UncomputableError("no sizes in seq")


def _stated(text: str, name: str) -> int:
    match = re.search(rf"'{name}': ([0-9]+)", text)
    if not match:
        raise UncomputableError(f"no {name} among its sizes")
    return int(match[1])


def _exact(row: Row) -> float:
    """The printed MiB in GiB, less rounded than value_gib."""
    return float(row.column("measured_value")) / 1024 if "MiB" in row.column("unit") else row.measured or 0.0
