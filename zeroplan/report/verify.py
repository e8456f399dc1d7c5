"""The screen of `zeroplan verify`: predicted beside measured, and what differs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.ledger import Checked
from zeroplan.report.console import heading, table
from zeroplan.report.subject import title
from zeroplan.sources import DEEPSPEED
from zeroplan.specs.job import Job

LESS = (
    "Activations are the model's own, without DeepSpeed; peaks are compared with them and without. Peaks are promised "
    "within 1 %, everything else to the byte."
)

ADDRESSES = (
    "DeepSpeed waits for a module's tensors in an order of addresses. What is predicted is the most that it may have "
    "at once then; it may be up to {less:,} B less."
)


def summary(job: Job, rows: list[Checked], measured: dict[str, Any]) -> Text:
    """Whether the run says what was predicted."""
    differing = [row for row in rows if not row.holds]
    ran = f"DeepSpeed {measured['versions']['deepspeed']} ran {title(job.model)} as rank {job.rank} of {job.ranks}, "
    ran += f"ZeRO-{job.strategy.stage}: "
    if not differing:
        return Text(f"{ran}all {len(rows)} numbers as predicted.", style="bold green")
    named = ", ".join(f"{row.name} ({row.group})" for row in differing[:3])
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    return Text(f"{ran}{len(differing)} of {len(rows)} numbers differ: {named}{more}.", style="bold red")


def details(rows: list[Checked], measured: dict[str, Any], *, brief: bool) -> list[RenderableType]:
    """Every number beside its measurement; `brief`: how many of a group are as predicted, and those that are not."""
    parts: list[RenderableType] = []
    other = measured["versions"]["deepspeed"] != DEEPSPEED
    if brief:
        grid = table(["", "numbers", "as predicted"])
        for group, each in groupby(rows, key=lambda row: row.group):
            held = [row.holds for row in each]
            grid.add_row(group, f"{len(held)}", f"{sum(held)}")
        if differing := [row for row in rows if not row.holds]:
            parts += ["", _table(differing, other=other)]
        return ["", grid, *parts, *_with(measured)]
    for group, of_group in groupby(rows, key=lambda row: row.group):
        parts += ["", heading(group), _table(of_group, other=other)]
    if below := max((row.less for row in rows if row.difference > row.within * row.measured), default=0):
        parts += ["", Text(ADDRESSES.format(less=below), style="dim")]
    return [*parts, "", Text(LESS, style="dim"), *_with(measured)]


def _with(measured: dict[str, Any]) -> list[RenderableType]:
    """What ran, and how long."""
    versions = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    return [Text(f"measured with {versions} in {measured['seconds']:.0f} s", style="dim")]


def _table(rows: Iterable[Checked], *, other: bool) -> Table:
    grid = table(["", "predicted", "measured", "difference", ""])
    for row in rows:
        difference = f"{row.difference:+,} {_unit(row)}" if row.difference else "0"
        verdict = "" if row.holds else "differs" if not other else f"differs; predicted for {DEEPSPEED}"
        style = "" if row.holds else "red"
        unit = f" {_unit(row)}"
        grid.add_row(row.name, f"{row.predicted:,}{unit}", f"{row.measured:,}{unit}", difference, verdict, style=style)
    return grid


def _unit(row: Checked) -> str:
    return "B" if row.unit == "bytes" else row.unit
