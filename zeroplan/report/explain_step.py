"""The part of `zeroplan explain` that follows seconds: formula, values, the rates they rest on, and their evidence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from zeroplan.clock import Term
from zeroplan.report.console import heading, table
from zeroplan.report.subject import gpus, title
from zeroplan.sources import SOURCES
from zeroplan.specs.job import Job
from zeroplan.symbols import SYMBOLS
from zeroplan.units import seconds


def screen(job: Job, terms: Sequence[Term]) -> list[RenderableType]:
    """Each formula once, with every term that it gives."""
    parts: list[RenderableType] = []
    for rule in dict.fromkeys(entry.rule for entry in terms):
        parts += _formula(job, [entry for entry in terms if entry.rule is rule])
    return parts


def _formula(job: Job, group: Sequence[Term]) -> list[RenderableType]:
    origin = group[0].provenance
    source = SOURCES[origin.source]
    grid = table(["", "worked out", "times", "in all"])
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap = False
    for entry in group:
        grid.add_row(f"  {entry.name}", entry.worked, f"{entry.times:,.4g}", seconds(entry.seconds))
    figures = dict.fromkeys(figure for entry in group for figure in entry.figures)
    symbols = [SYMBOLS[name] for name in group[0].symbols]
    what = f"  for {title(job.model)} on {gpus(job)}, ZeRO-{job.strategy.stage}, seconds of an optimizer step:"
    return [
        heading(f"seconds = {origin.equation}"), Text(f"  {origin.meaning}"), Text(what), grid,
        *(Text(f"  {one.letter}  {one.meaning}{f' [{one.unit}]' if one.unit else ''}") for one in symbols),
        *(Text(f"  {figure.value:.4g}: {figure.evidence}, {figure.source}") for figure in figures),
        Text(f"  source: {origin.cited} ({source.address})"),
        *([Text(f"  note: {origin.note}")] if origin.note else []), "",
    ]  # fmt: skip
