"""What fills a card: the parts of a bar, and how much a whole bar stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.fit import Fit
from zeroplan.ledger import Ledger, is_activation, total

MOST = 1.5
"""Cards' capacity that a bar shows at most."""


class BarSegment(NamedTuple):
    name: str
    bytes: int


def parts(counted: Ledger, verdict: Fit) -> list[BarSegment]:
    """What makes up the bytes that a GPU needs, and what of the card is left."""
    peak = counted.gpu.peak
    beside = total(counted.gpu.beside(peak))
    activations = sum(entry.bytes for entry in counted.gpu.beside(peak) if is_activation(entry))
    segments = [
        BarSegment("held", total(peak.lines) - beside),  # not all of it while the engine is made
        BarSegment("initialize" if peak.phase == "init" else "gradients, buffers", beside - activations),
        BarSegment("activations", activations),
        BarSegment("outside PyTorch", total(verdict.outside)),
    ]
    headroom = verdict.gpu.headroom
    return [*segments, BarSegment("free", headroom)] if headroom is not None and headroom > 0 else segments


def scale(several: Sequence[Sequence[BarSegment]], capacity: int | None) -> int:
    """Bytes that a full bar stands for, where several are to be compared: of a card at most half as many again."""
    most = max(sum(part.bytes for part in filled) for filled in several)
    return min(max(capacity, most), int(MOST * capacity)) if capacity else most
