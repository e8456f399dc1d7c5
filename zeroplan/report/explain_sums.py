"""The part of `zeroplan explain` for rows that are sums, and for what other instruments show."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from zeroplan.levels import RESERVED, USED, Level
from zeroplan.report.console import heading, table
from zeroplan.report.subject import gpus, title
from zeroplan.specs.job import Job
from zeroplan.sums import Sum
from zeroplan.units import gb, gib, seconds

SHOWN = {"GiB": gib, "GB": gb, "s": seconds}
LEVELS = {
    RESERVED: "torch.cuda.max_memory_reserved: blocks that PyTorch has taken of the card, in use or not",
    USED: "what is used of the card at the peak, by whomever",
}
"""What the levels beyond the counted one are called in tables, and what they are."""


def screen(sums: Sequence[tuple[Job, Sum]]) -> list[RenderableType]:
    """Parts below one another, strategies side by side."""
    if not sums:
        return []
    job, first = sums[0]
    grid = table(["", *(f"ZeRO-{one.strategy.stage}" for one, _sum in sums)])
    show = SHOWN[first.unit]
    for name in dict.fromkeys(name for _job, one in sums for name, _value in one.parts):
        grid.add_row(f"  {name}", *(show(of) if (of := _of(one, name)) else "-" for _job, one in sums))
    grid.add_row(f"  {first.name}", *(show(one.value) for _job, one in sums), style="bold")
    return [
        heading(f"{first.name}: the sum of its parts"), Text(f"  {first.meaning}"),
        Text(f"  for {title(job.model)} on {gpus(job)}:"), grid,
        *(Text(f"  ZeRO-{one.strategy.stage}: {each.said}") for one, each in sums if each.said),
        Text("  Each part has a formula: zeroplan explain, with its name."),
        Text(f"  evidence: {', '.join(dict.fromkeys(one.evidence for _job, one in sums))}"), "",
    ]  # fmt: skip


def _of(one: Sum, name: str) -> float:
    return sum(value for part, value in one.parts if part == name)


def levels_screen(name: str, levels: Sequence[tuple[Job, Level]]) -> list[RenderableType]:
    """A range that has no formula, with what it was read from."""
    if not levels:
        return []
    job = levels[0][0]
    grid = table(["", "least", "likely", "most"])
    for one, level in levels:
        grid.add_row(f"  ZeRO-{one.strategy.stage}", gib(level.low), gib(level.bytes), gib(level.high))
    reasons: dict[str, list[str]] = {}
    for one, level in levels:
        reasons.setdefault(level.reason, []).append(f"ZeRO-{one.strategy.stage}")
    return [
        heading(f"{name}: a range, read in published runs"), Text(f"  {LEVELS[name]}"),
        Text(f"  for {title(job.model)} on {gpus(job)}:"), grid,
        *(Text(f"  {', '.join(stages)}: {reason}") for reason, stages in reasons.items()),
        Text(f"  evidence: {', '.join(dict.fromkeys(level.evidence for _job, level in levels))}"), "",
    ]  # fmt: skip
