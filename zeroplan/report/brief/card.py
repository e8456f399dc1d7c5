"""A card as a bar: what fills it, each part with a fill of its own, so that no colour is needed, and in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from zeroplan.fit import Fit
from zeroplan.ledger import Ledger, is_activation, total
from zeroplan.report.brief.marks import marks
from zeroplan.report.console import console
from zeroplan.specs.job import Job
from zeroplan.units import gib

FILLS = {
    "held": "█", "gradients, buffers": "▓", "initialize": "▓", "activations": "▒", "outside PyTorch": "░", "free": "·",
}  # fmt: skip
COLOURS = {
    "held": "blue", "gradients, buffers": "yellow", "initialize": "yellow", "activations": "magenta",
    "outside PyTorch": "cyan", "free": "dim",
}  # fmt: skip
"""Beside the fills, where a terminal has colours."""
END, BEYOND = "│", "▶"
"""Where the card ends, and where a bar would go on."""
MOST = 1.5
"""Cards' capacity that a bar shows at most."""
WIDEST = 120
"""Columns of a bar."""


class BarSegment(NamedTuple):
    name: str
    bytes: int


def card(job: Job, counted: Ledger, verdict: Fit) -> list[RenderableType]:
    """What fills a GPU of a job, in a line of fills and one of numbers."""
    filled, capacity = parts(counted, verdict), verdict.gpu.capacity
    size = f" {gib(capacity)}" if capacity else ""
    drawn = bar(filled, capacity, min(console().width - len(size), WIDEST), scale([filled], capacity))
    most = verdict.gpu.most
    said = [f"such runs took up to {gib(most)}"] if capacity and most > verdict.gpu.needed else []
    return [drawn.append(size), coloured(_numbers(job, filled, said))]


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


def bar(filled: Sequence[BarSegment], capacity: int | None, width: int, whole: int) -> Text:
    """In so many columns, which stand for `whole` bytes."""
    drawn, at, done = "", 0, 0
    for part in filled:
        done += part.bytes
        end = round(min(done / whole, 1) * width)
        drawn += FILLS[part.name] * (end - at)
        at = max(at, end)
    if done > whole:
        drawn = drawn[:-1] + BEYOND
    if capacity and capacity < whole:
        edge = min(round(capacity / whole * width), width - 1)
        drawn = f"{drawn[:edge]}{END}{drawn[edge + 1 :]}" if edge < len(drawn) else drawn.ljust(edge) + END
    return coloured(drawn)


def fills(capacity: int | None) -> Text:
    """What each of them stands for."""
    names = [f"{fill} {name}" for name, fill in FILLS.items() if name != "initialize" and (capacity or name != "free")]
    return coloured("  ".join([*names, *([f"{END} the card's end"] if capacity else [])]))


def coloured(text: str) -> Text:
    """A text in which fills have their colours."""
    styled = Text(text)
    for name, fill in FILLS.items():
        styled.highlight_regex(f"[{fill}]+", COLOURS[name])
    return styled


def _numbers(job: Job, filled: Sequence[BarSegment], more: Sequence[str]) -> str:
    """The parts with their sizes and how far these hold, and what else is said of them."""
    known = marks(job)
    signs = {
        "held": known.held, "gradients, buffers": known.peak, "initialize": known.peak,
        "activations": known.activations, "outside PyTorch": known.outside, "free": "",
    }  # fmt: skip
    each = [f"{FILLS[part.name]} {part.name} {signs[part.name]}{gib(part.bytes)}" for part in filled if part.bytes]
    lines = [""]
    for said in [*each, *more]:  # none is broken
        longer = f"{lines[-1]}  {said}".strip()
        lines = [*lines[:-1], longer] if cell_len(longer) <= console().width else [*lines, said]
    return "\n".join(lines)
