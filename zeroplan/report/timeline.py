"""Allocated bytes over a step, drawn: one column for some moments of it, the fullest of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from rich.console import RenderableType
from rich.text import Text

from zeroplan.costs.step_timeline import Instant
from zeroplan.ledger import FIRST, Ledger, total
from zeroplan.report.console import heading
from zeroplan.units import GiB, gib

ROWS = 14
EIGHTHS = "▁▂▃▄▅▆▇█"
KINDS = (
    ("held", "░", "blue", "held between steps"),
    ("beside", "▒", "yellow", "gradients, gathered parameters, buffers"),
    ("activations", "█", "green", "activations"),
)
"""Field of an instant, how it is drawn without and with colour, and its meaning, from the bottom up."""
SHARES = {"init": 1, "forward": 6, "backward": 9, "step": 3}
"""Parts of the width; within a pass columns stand for the same number of moments, not of seconds."""


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


def in_columns(course: Sequence[Instant], width: int) -> dict[str, list[Instant]]:
    """A step in so many columns, phase by phase: each the fullest of as many moments."""
    phases = {phase: list(instants) for phase, instants in groupby(course, key=lambda instant: instant.phase)}
    return {phase: _columns(phases[phase], share) for phase, share in _widths(phases, width).items()}


def notes(counted: Ledger, *, whole: bool) -> list[str]:
    """What is drawn, and what is not."""
    drawn = [
        "Init, the last micro-step and the update of a later step.",
        "Across: moments in order, not seconds; each column shows the fullest of its own.",
    ]
    peak = counted.gpu.peak
    if peak.phase in FIRST:
        most = f"{gib(total(peak.lines))} in {peak.phase.replace('_', ' ')}, {peak.place}"
        drawn.append(f"The run's first step, which is not drawn, needs more: {most}.")
    if not whole:
        drawn.append("Activations are closed forms here: forward and backward are known at their largest moments only.")
    return drawn


def _axis(size: float) -> str:
    return f"{size / GiB:,.1f} "


def _widths(phases: dict[str, list[Instant]], width: int) -> dict[str, int]:
    """Columns of each phase."""
    whole = sum(SHARES[phase] for phase in phases)
    return {phase: max(len(phase) + 1, width * SHARES[phase] // whole - 1) for phase in phases}


def _columns(instants: Sequence[Instant], count: int) -> list[Instant]:
    """The fullest of as many moments as fall into each column; few moments are drawn wide."""
    edges = [at * len(instants) // count for at in range(count + 1)]
    return [
        max(instants[start : max(end, start + 1)], key=lambda instant: instant.bytes)
        for start, end in pairwise(edges)
    ]


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
