"""The moments of a step in columns of a chart, and what of the step such a chart leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from zeroplan.costs.step_timeline import Instant
from zeroplan.ledger import FIRST, Ledger, total
from zeroplan.units import gib

SHARES = {"init": 1, "forward": 6, "backward": 9, "step": 3}
"""Parts of the width; within a pass columns stand for the same number of moments, not of seconds."""


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
