"""The widths that a row states, and how many parameters a layer and a pipeline stage have."""

from __future__ import annotations

import re
from typing import NamedTuple

from benchmarks.published.rows import Row, UncomputableError

PLAIN = re.compile(r"gpt|opt|bloom|mpt|bert|falcon", re.IGNORECASE)


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


def shape(row: Row) -> Shape:
    """Raises `UncomputableError` where a width is missing."""
    h, layers, heads = row.wanted("hidden"), row.wanted("layers"), row.wanted("heads")
    kv_heads = row.count("kv_heads") or heads
    queries, keys = h, h // heads * kv_heads
    ffn, vocab = row.count("ffn") or 4 * h, row.wanted("vocab")
    gated = not PLAIN.search(row.column("model"))
    attention = 2 * h * queries + 2 * h * keys
    layer = attention + (3 * h * ffn + 2 * h if gated else 2 * h * ffn + 9 * h + ffn)
    table = vocab * h
    positions = 0 if gated or "bloom" in row.lower("model") else (row.count("seq") or 0) * h
    stated = row.count("params")
    counts = {tied: layers * layer + positions + table * (1 if tied else 2) for tied in (True, False)}
    tied = (not gated) if stated is None else min(counts, key=lambda one: abs(counts[one] - stated))
    parameters = stated or counts[tied]
    if abs(parameters - layers * layer) < 0.02 * layer:  # layers alone, as component rows count
        table = positions = 0
    elif abs(counts[tied] - parameters) > 0.15 * parameters:
        raise UncomputableError(
            f"the widths make {counts[tied] / 1e9:.2f} billion parameters, the row states {parameters / 1e9:.2f}"
        )
    return Shape(h, layers, heads, queries, keys, ffn, vocab, gated, parameters, layer, table + positions, table, tied)


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
    index = row.rank * pp // row.gpus
    return [found[0]] if index == 0 else [found[-1]] if index == pp - 1 else found[1:2]
