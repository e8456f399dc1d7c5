"""The screen of `zeroplan observe`: predicted beside observed, and where the log says so."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.errors import printable
from zeroplan.observe.comparison import SUM, Observed
from zeroplan.observe.log import Log
from zeroplan.report.console import console, heading, table
from zeroplan.report.subject import title
from zeroplan.specs.job import Job
from zeroplan.units import gib, seconds

WIDE, USUAL = 100, 80
"""Columns from which on there is room for differences in units and the file's name in every row, and for how often each
number was seen."""
MOST_OFF = 12
"""Rows of a short screen."""
LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))


def summary(job: Job, log: Log, rows: list[Observed]) -> Text:
    """What was read, without a verdict."""
    extent = f"{log.steps:,} optimizer steps" if log.steps else "no count of steps"
    if log.runs > 1:
        extent = f"the last of {log.runs} runs, from line {log.first:,} on, {extent}"
    what = f"{title(job.model)} on {job.ranks} GPU{'s' if job.ranks > 1 else ''}, ZeRO-{job.strategy.stage}"
    read = f"{len(rows)} numbers of {printable(log.path)} ({log.lines:,} lines, {extent})"
    return Text(f"{what}: {read} beside their prediction.", style="bold")


def contradicted(said: list[str]) -> list[RenderableType]:
    """Where the log's run is another one than that predicted, before any number."""
    return [Text(one, style="bold yellow") for one in said]


def details(log: Log, rows: list[Observed], notes: list[str], *, brief: bool) -> list[RenderableType]:
    """Every number of the log beside its prediction; `brief`: those that have one, the furthest off first."""
    parts: list[RenderableType] = []
    if brief:
        known = sorted((row for row in rows if row.difference is not None), key=_off, reverse=True)
        off = [row for row in known if row.difference]
        said = f"{len(known) - len(off)} as predicted, {len(rows) - len(known)} without a prediction: -v has all."
        parts += ["", *([_table(log, off[:MOST_OFF])] if off else []), Text(said, style="dim")]
        return [*parts, *(Text(note, style="dim") for note in notes)]
    for group, of_group in groupby(rows, key=lambda row: row.group):
        parts += ["", heading(group), _table(log, list(of_group))]
    parts += ["", *(Text(note, style="dim") for note in notes)]
    return parts


def _off(row: Observed) -> float:
    """Share of what was observed."""
    return abs(row.difference or 0.0) / (abs(row.observed) or 1.0)


def _table(log: Log, rows: list[Observed]) -> Table:
    width = console().width
    columns = [("", [row.name for row in rows]), ("predicted", [_predicted(row) for row in rows]),
               ("observed", [shown(row.observed, row.unit) for row in rows])]  # fmt: skip
    if width >= WIDE:
        columns += [("difference", [_difference(row) for row in rows]), ("", [_share(row) for row in rows])]
    else:
        columns += [("difference", [_share(row) or _difference(row) for row in rows])]
    if width >= USUAL:
        columns += [("seen", [_seen(row) for row in rows])]
    file = f"{printable(Path(log.path).name)}:" if width >= WIDE else ""  # whose name the answer has
    columns += [("at" if file else "line", [f"{file}{row.line}" for row in rows])]
    grid = table([name for name, _cells in columns])
    if file:
        grid.columns[-1].justify, grid.columns[-1].no_wrap = "left", False
    for cells in zip(*(cells for _name, cells in columns), strict=True):
        grid.add_row(*cells)
    return grid


def _predicted(row: Observed) -> str:
    return "-" if row.predicted is None else shown(row.predicted, row.unit)


def _difference(row: Observed) -> str:
    """Predicted less observed."""
    if not row.difference:
        return "" if row.difference is None else "0"
    return f"{'+' if row.difference > 0 else '-'}{shown(abs(row.difference), row.unit)}"


def _share(row: Observed) -> str:
    """Predicted less observed, as a share of the observed."""
    if not row.difference or not row.observed:
        return ""
    share = row.difference / row.observed
    return f"{share:+,.0%}" if abs(share) >= 10 else f"{share:+.1%}"


def _seen(row: Observed) -> str:
    """Number of observations, and the statistic of them that is shown."""
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
