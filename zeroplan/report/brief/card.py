"""A card as a bar: what fills it, each part with a fill of its own, so that no colour is needed, and in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from zeroplan.fit import Fit
from zeroplan.ledger import Ledger
from zeroplan.report.brief.marks import marks
from zeroplan.report.console import console
from zeroplan.report.segments import BarSegment, parts, scale
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
WIDEST = 120
"""Columns of a bar."""


def card(job: Job, counted: Ledger, verdict: Fit) -> list[RenderableType]:
    """What fills a GPU of a job, in a line of fills and one of numbers."""
    filled, capacity = parts(counted, verdict), verdict.gpu.capacity
    size = f" {gib(capacity)}" if capacity else ""
    drawn = bar(filled, capacity, min(console().width - len(size), WIDEST), scale([filled], capacity))
    most = verdict.gpu.most
    said = [f"such runs took up to {gib(most)}"] if capacity and most > verdict.gpu.needed else []
    return [drawn.append(size), coloured(_numbers(job, filled, said))]


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
