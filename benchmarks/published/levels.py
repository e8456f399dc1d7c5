"""From lines to what an instrument shows: allocated, max allocated, reserved, and what nvidia-smi calls used."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from benchmarks.published.constants import CONTEXT
from benchmarks.published.prediction import Prediction
from benchmarks.published.rows import ALLOCATED, HELD, RESERVED, USED, Row
from zeroplan.catalog.hardware import gpu, gpu_of_class
from zeroplan.errors import ZeroplanError
from zeroplan.ledger import total

GIB = 2**30


class Value(NamedTuple):
    """GiB, and the range that it is printed with."""

    at: float
    low: float
    high: float


def levels(row: Row, found: Prediction) -> dict[str, Value]:
    """What initialize leaves in the allocator's cache stays there on a card with room, beside longer activations: at
    stages 1 and 2 it is counted, at stage 3, whose gathers use such blocks again, it is the range's upper end.
    """
    held, peak, initialize = (size / GIB for size in (total(found.held), found.peak.bytes, found.initialize))
    ratio, outside = found.ratio, CONTEXT if row.gpus == 1 else found.outside
    card = capacity(row)
    beside = peak + found.cached / GIB
    cached = beside if found.cached and (card is None or beside < card - outside.value) else 0.0
    reserved = Value(
        max(ratio.value * peak, initialize, 0.0 if row.stage == 3 else cached),
        max(ratio.low * peak, initialize),
        max(ratio.high * peak, ratio.value * initialize, ratio.value * cached),
    )
    return {
        HELD: Value(held, held, held),
        ALLOCATED: Value(peak, peak, peak),
        RESERVED: reserved,
        USED: Value(reserved.at + outside.value, reserved.low + outside.low, reserved.high + outside.high),
    }


def needed(found: Prediction) -> float:
    """GiB without which a run cannot go on: the allocator hands back what it has cached before it fails."""
    return found.peak.bytes / GIB + CONTEXT.value


def capacity(row: Row) -> float | None:
    """GiB of the row's card, as torch reports it; None for a card that nobody knows."""
    return _card(row.lower("gpu_type"))


@cache
def _card(words: str) -> float | None:
    chip = re.search(r"(rtx-?[0-9a]+|\b[abhvmiltg]+[0-9]+)", words)
    size = re.search(r"([0-9]+) ?gb", words)
    name = {"a800": "a100", "h800": "h100"}.get(chip[1], chip[1]) if chip else ""
    for found in (f"{name}-{size[1]}gb" if size else name, name):
        try:
            card = gpu(found)
        except ZeroplanError:
            continue
        if not size or abs(card.memory_class - int(size[1])) <= 1:
            return card.memory.value / GIB
    try:
        return gpu_of_class(int(size[1])).memory.value / GIB if size else None
    except ZeroplanError:
        return None
