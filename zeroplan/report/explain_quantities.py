"""The part of `zeroplan explain` for what tables sum up: formula, symbols, values by stage, evidence and source."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from zeroplan.quantities import Quantity
from zeroplan.report.console import heading, table
from zeroplan.report.subject import gpus, title
from zeroplan.sources import SOURCES
from zeroplan.specs.job import Job
from zeroplan.symbols import SYMBOLS
from zeroplan.units import gib, seconds

Quantities = Sequence[tuple[Job, Quantity]]


def screen(entries: Quantities) -> list[RenderableType]:
    """Each formula once, with what it gives at each stage."""
    parts: list[RenderableType] = []
    for rule in dict.fromkeys(entry.rule for _job, entry in entries):
        parts += _formula([(job, entry) for job, entry in entries if entry.rule is rule])
    return parts


def _formula(group: Quantities) -> list[RenderableType]:
    job, first = group[0]
    source = SOURCES[first.origin.source]
    grid = table(["  at", "worked out", ""])
    grid.columns[1].justify, grid.columns[1].no_wrap = "left", False
    for one, entry in group:
        grid.add_row(f"  ZeRO-{one.strategy.stage}", entry.worked, shown(entry))
    said = [f"  ZeRO-{one.strategy.stage}: {entry.said}" for one, entry in group if entry.said]
    symbols = [SYMBOLS[name] for name in first.symbols]
    return [
        heading(f"{first.name} = {first.origin.equation}"), Text(f"  {first.origin.meaning}"),
        Text(f"  for {title(job.model)} on {gpus(job)}:"), grid, *map(Text, said),
        *(Text(f"  {one.letter}  {one.meaning}{f' [{one.unit}]' if one.unit else ''}") for one in symbols),
        *(Text(f"  {figure.value:.4g}: {figure.evidence}, {figure.source}") for figure in first.figures),
        Text(f"  source: {first.origin.cited} ({source.address})"), Text(f"  evidence: {first.evidence}"),
        *([Text(f"  note: {first.origin.note}")] if first.origin.note else []), "",
    ]  # fmt: skip


def shown(entry: Quantity) -> str:
    """The value with its unit, as tables print it."""
    if entry.unit == "bytes":
        return gib(entry.value) if entry.value >= 0 else f"-{gib(-entry.value)}"
    if entry.unit == "s":
        return seconds(entry.value)
    return f"{entry.value:,.0f} {entry.unit}" if entry.unit else f"{entry.value:.1%}"
