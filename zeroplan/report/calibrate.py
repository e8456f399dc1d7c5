"""The screen of `zeroplan calibrate`: what was measured, how, and what was left out."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from zeroplan.calibrate.findings import Findings
from zeroplan.calibrate.host import machine
from zeroplan.calibrate.node import written
from zeroplan.errors import printable
from zeroplan.report.console import heading, table


def summary(findings: Findings, output: str | None) -> Text:
    """What was measured, and where it lies."""
    name = printable(output or "")
    where = f"; written to {name}, for --cluster {name}" if name else "; -o node.yaml keeps it for --cluster"
    return Text(f"{machine()}: {len(findings.figures)} figures measured{where}.", style="bold")


def details(findings: Findings) -> list[RenderableType]:
    """Every figure with how it came about, and what beside figures was seen."""
    grid = table(["", "measured", "how"])
    grid.columns[2].justify, grid.columns[2].no_wrap = "left", False
    for figure in findings.figures:
        grid.add_row(figure.field, written(figure), figure.how)
    parts: list[RenderableType] = ["", grid]
    if findings.observations:
        parts += ["", heading("Seen beside them"), *(Text(seen) for seen in findings.observations)]
    return [*parts, *(Text(f"left out: {reason}", style="yellow") for reason in findings.left_out)]
