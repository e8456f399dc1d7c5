"""Allocated bytes over a step, drawn: one column for some moments of it, the fullest of them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from zeroplan.costs.step_timeline import Instant
from zeroplan.ledger import Ledger
from zeroplan.report.console import heading
from zeroplan.report.moments import in_columns, notes
from zeroplan.units import GiB, gib

ROWS = 14
EIGHTHS = "▁▂▃▄▅▆▇█"
KINDS = (
    ("held", "░", "blue", "held between steps"),
    ("beside", "▒", "yellow", "gradients, gathered parameters, buffers"),
    ("activations", "█", "green", "activations"),
)
"""Field of an instant, how it is drawn without and with colour, and its meaning, from the bottom up."""


def timeline(course: Sequence[Instant], counted: Ledger, width: int, *, whole: bool) -> list[RenderableType]:
    """The step of one GPU, with its peak marked."""
    most = max(instant.bytes for instant in course)
    label = len(_axis(most))
    columns = in_columns(course, width - label)
    drawn = [instant for column in columns.values() for instant in column]
    rows = [_row(row, drawn, most, label) for row in range(ROWS, 0, -1)]
    peak = max(range(len(drawn)), key=lambda at: drawn[at].bytes)
    full = drawn[peak]
    return [
        "",
        heading("Allocated bytes over a step, per GPU (GiB)"),
        *rows,
        Text(" " * label + "".join(phase[: len(column)].ljust(len(column)) for phase, column in columns.items())),
        Text(" " * (label + peak) + "▲", style="bold"),
        Text(f"{' ' * label}{gib(full.bytes)} in {full.phase}, {full.place}", style="bold"),
        Text.assemble(*((f"{glyph} {meaning}   ", colour) for _field, glyph, colour, meaning in KINDS)),
        Text(" ".join(notes(counted, whole=whole)), style="dim"),
    ]


def _axis(size: float) -> str:
    return f"{size / GiB:,.1f} "


def _row(row: int, drawn: Sequence[Instant], most: int, label: int) -> Text:
    """One line of cells, counted from the bottom, with the bytes at its top where there is room."""
    named = row in (ROWS, ROWS // 2, 1)
    text = Text(_axis(most * row / ROWS).rjust(label) if named else " " * label, style="dim")
    for instant in drawn:
        text.append(*_cell(instant, (row - 1) * most / ROWS, most / ROWS))
    return text


def _cell(instant: Instant, floor: float, height: float) -> tuple[str, str]:
    """What fills the cell above `floor`; the topmost is as high as it reaches."""
    top = 0
    for field, glyph, colour, _meaning in KINDS:
        top += getattr(instant, field)
        if top >= floor + height:
            return glyph, colour
        if top > floor and top == instant.bytes:
            eighths = int(8 * (top - floor) / height)
            return (EIGHTHS[eighths - 1] if eighths else " "), colour
        if top > floor + height / 2:
            return glyph, colour
    return " ", ""
