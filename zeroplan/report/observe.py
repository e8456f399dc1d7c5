"""The screen of `zeroplan observe`: predicted beside observed, and where the log says so."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.observe.beside import SUM, Observed
from zeroplan.observe.log import Log
from zeroplan.report.console import assumptions, console, heading, table
from zeroplan.report.estimate import title
from zeroplan.specs.job import Job
from zeroplan.units import gib, seconds

WIDE = 100
"""Columns from which on there is room for the file's name in every row."""
LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))


def answer(job: Job, log: Log, rows: list[Observed]) -> Text:
    """What was read, without a verdict."""
    told = f"{log.steps:,} optimizer steps" if log.steps else "no count of steps"
    what = f"{title(job.model)} on {job.ranks} GPU{'s' if job.ranks > 1 else ''}, ZeRO-{job.strategy.stage}"
    return Text(f"{what}: {len(rows)} numbers of {log.path} ({log.lines:,} lines, {told}) beside their prediction.",
                style="bold")  # fmt: skip


def details(log: Log, rows: list[Observed], notes: list[str], assumed: tuple[str, ...]) -> list[RenderableType]:
    """Every number of the log beside its prediction."""
    parts: list[RenderableType] = []
    for group, found in groupby(rows, key=lambda row: row.group):
        parts += ["", heading(group), _table(log, list(found))]
    parts += ["", *(Text(note, style="dim") for note in notes)]
    return [*parts, *assumptions(assumed)]


def _table(log: Log, rows: list[Observed]) -> Table:
    file = f"{Path(log.path).name}:" if console().width >= WIDE else "line "  # whose name the answer has
    grid = table(["", "predicted", "observed", "difference", "", "seen", "at"])
    grid.columns[-1].justify, grid.columns[-1].no_wrap = "left", False
    for row in rows:
        predicted = "-" if row.predicted is None else shown(row.predicted, row.unit)
        grid.add_row(row.name, predicted, shown(row.observed, row.unit), *_difference(row), _seen(row),
                     f"{file}{row.line}")  # fmt: skip
    return grid


def _difference(row: Observed) -> tuple[str, str]:
    """Predicted less observed, and as a share of the observed."""
    if row.difference is None:
        return "", ""
    if not row.difference:
        return "0", ""
    share = f"{row.difference / row.observed:+,.1%}" if row.observed else ""
    return f"{'+' if row.difference > 0 else '-'}{shown(abs(row.difference), row.unit)}", share


def _seen(row: Observed) -> str:
    """How often, and which of them it is."""
    if row.statistic == SUM:
        return f"{row.seen:,} calls"
    return "once" if row.seen == 1 else f"{row.statistic} of {row.seen:,}"


def shown(value: float, unit: str) -> str:
    """A number with its unit, for people."""
    if unit == "bytes":
        return gib(value)
    if unit == "s":
        return seconds(value) if value else "0 s"
    if unit == "calls":
        return f"{value:,.0f} calls"
    if unit == "samples/s":
        return f"{value:,.4g} /s"
    factor, letter = next(((size, name) for size, name in LETTERS if value >= size), (1.0, ""))
    return f"{value / factor:.4g} {letter}"
