"""The widths that a row states, and how many parameters a layer and a pipeline stage have."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmarks.published.rows import Row, UncomputableError

PLAIN = re.compile(r"gpt|\bopt|bloom|mpt|bert|falcon|pythia|neox|starcoder|phi-?[12]\b", re.IGNORECASE)
GATED = re.compile(r"llama|vicuna|qwen|mistral|gemma|baichuan|\byi\b|olmo|phi-?3", re.IGNORECASE)
EXPERTS = re.compile(r"moe|mixtral|[0-9]x[0-9]+b|-a[0-9.]+b|deepseek-?v[23]", re.IGNORECASE)


class Shape(NamedTuple):
    hidden: int
    layers: int
    heads: int
    queries: int
    keys: int
    ffn: int
    vocab: int
    gated: bool
    parameters: int
    """As stated; worked out where it is not."""
    layer: int
    """Parameters of one layer."""
    embedding: int
    """Of token and position embeddings."""
    head: int
    """Of the head; the embedding again where they are tied."""
    tied: bool


HEAD_WIDTHS = (128, 256)
"""What models use that do not divide hidden by heads: Qwen3, Gemma."""


def shape(row: Row) -> Shape:
    """Of the readings that the columns leave open, the one nearest to the stated parameters.

    Raises `UncomputableError` where a width is missing, or no reading makes the stated number.
    """
    h, layers, heads = row.wanted("hidden"), row.wanted("layers"), row.wanted("heads")
    if EXPERTS.search(row.column("model")):
        raise UncomputableError("a mixture of experts, whose experts no column states")
    stated = row.count("params")
    if h < heads:
        raise UncomputableError(f"hidden {h} is less than heads {heads}")
    readings = [
        _reading(row, gated, width, tied)
        for gated in _mlps(row) for width in ((h // heads, *HEAD_WIDTHS) if gated else (h // heads,))
        for tied in (not gated, gated)
    ]  # fmt: skip
    if stated is None:
        return readings[0]
    if abs(stated - layers * readings[0].layer) < 0.02 * readings[0].layer:  # layers alone, as component rows count
        return readings[0]._replace(parameters=stated, embedding=0, head=0)
    nearest = min(readings, key=lambda one: abs(one.parameters - stated))
    if abs(nearest.parameters - stated) > 0.15 * stated:
        raise UncomputableError(
            f"the widths make {nearest.parameters / 1e9:.2f} billion parameters, the row states {stated / 1e9:.2f}"
        )
    return nearest._replace(parameters=stated)


def _mlps(row: Row) -> tuple[bool, ...]:
    """Whether the MLP is gated, or both where the model's name does not say it."""
    if GATED.search(row.column("model")):
        return (True,)
    return (False,) if PLAIN.search(row.column("model")) else (True, False)


def _reading(row: Row, gated: bool, width: int, tied: bool) -> Shape:
    h, layers, heads = row.wanted("hidden"), row.wanted("layers"), row.wanted("heads")
    queries, keys = heads * width, (row.count("kv_heads") or heads) * width
    ffn, vocab = row.count("ffn") or 4 * h, row.wanted("vocab")
    attention = 2 * h * queries + 2 * h * keys
    layer = attention + (3 * h * ffn + 2 * h if gated else 2 * h * ffn + 9 * h + ffn)
    table = vocab * h
    positions = 0 if gated or "bloom" in row.lower("model") else (row.count("seq") or 0) * h
    total = layers * layer + positions + table * (1 if tied else 2)
    return Shape(h, layers, heads, queries, keys, ffn, vocab, gated, total, layer, table + positions, table, tied)


class Stage(NamedTuple):
    """One pipeline stage on one tensor-parallel rank."""

    layers: int
    parameters: int
    in_flight: int
    """Micro-batches whose activations it holds at once."""
    first: bool
    last: bool


def stages(row: Row, one: Shape) -> list[Stage]:
    """The pipeline's stages, layers spread evenly, or the one stage of the rank that the row names."""
    pp, tp = row.pp, row.tp
    layers = -(-one.layers // pp)
    found = []
    for index in sorted({0, pp // 2, pp - 1}):
        first, last = index == 0, index == pp - 1
        ends = (one.embedding if first else 0) + (one.head if last and not (first and one.tied) else 0)
        in_flight = min(pp - index, row.count("grad_accum") or pp)
        found.append(Stage(layers, (layers * one.layer + ends) // tp, in_flight, first, last))
    if row.rank is None:
        return found
    index = min(row.rank * pp // row.gpus, pp - 1)
    return [found[0] if index == 0 else found[-1] if index == pp - 1 else found[1]]
