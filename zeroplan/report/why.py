"""Why not another strategy: its reason as a line, and what differs as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.fit import PLACES
from zeroplan.plan import label
from zeroplan.report.console import table
from zeroplan.search import Candidate
from zeroplan.units import gib, seconds
from zeroplan.why import LineDifference, Why

MOST_ROWS = 6
LEAST = 0.01
"""Share of all differences together under which a line stands among the others."""
OTHERS = "others"


def summary(why: Why) -> Text:
    """The reason as a sentence."""
    strategy = f" Its best: {label(why.candidate)}." if why.candidate else ""
    return Text(f"Why not {why.constraint}: {why.reason}.{strategy}", style="bold")


def in_one_line(why: Why) -> Text:
    """The reason below a plan, and how to ask for more."""
    return Text(f"Why not {why.constraint}: {why.reason} (--why {why.constraint}).")


def details(why: Why, plan: Candidate | None) -> list[RenderableType]:
    """The lines that differ from the plan's: of what is short, of seconds where nothing is; and what they sum up to."""
    if plan is None or why.candidate is None:
        return []
    grid = table(["", "difference", "plan", why.constraint])
    if why.lack or why.more is not None:
        _add(grid, why.bytes, gib)
        _add_sum(grid, _needed(plan, why), f"needed, {PLACES[why.of]}", gib)
        _add_sum(grid, _step(plan, why), "step", seconds)
        return [grid]
    _add(grid, why.seconds, seconds)
    _add_sum(grid, _step(plan, why), "step", seconds)
    _add_sum(grid, _needed(plan, why), f"needed, {PLACES[why.of]}", gib)
    return [grid, *_scaled(plan, why)]


def _needed(plan: Candidate, why: Why) -> LineDifference:
    assert why.candidate is not None
    return LineDifference("", getattr(plan.fit, why.of).needed, getattr(why.candidate.fit, why.of).needed)


def _step(plan: Candidate, why: Why) -> LineDifference:
    return LineDifference("", plan.time.total, plan.time.total + (why.slower or 0.0))


def _add(grid: Table, rows: Sequence[LineDifference], shown: Callable[[float], str]) -> None:
    """The largest differences, and the rest as one line."""
    spread = sum(abs(row.difference) for row in rows)
    large = [row for row in rows[:MOST_ROWS] if abs(row.difference) >= LEAST * spread]
    for row in large:
        grid.add_row(row.name, *_cells(row, shown))
    if rest := rows[len(large) :]:
        both = LineDifference(OTHERS, sum(row.plan for row in rest), sum(row.alternative for row in rest))
        grid.add_row(both.name, *_cells(both, shown))


def _add_sum(grid: Table, row: LineDifference, name: str, shown: Callable[[float], str]) -> None:
    grid.add_row(name, *_cells(row, shown), style="bold")


def _cells(row: LineDifference, shown: Callable[[float], str]) -> list[str]:
    sign = "+" if row.difference > 0 else "-" if row.difference < 0 else ""
    return [f"{sign}{shown(abs(row.difference))}", *(shown(one) if one else "-" for one in (row.plan, row.alternative))]


def _scaled(plan: Candidate, why: Why) -> list[RenderableType]:
    """Where the batches differ, what the seconds are of."""
    assert why.candidate is not None
    own, other = _sequences(plan), _sequences(why.candidate)
    return [] if own == other else [Text(f"Seconds are of {own} sequences; its own steps have {other}.", style="dim")]


def _sequences(candidate: Candidate) -> int:
    return candidate.strategy.micro_batch * candidate.strategy.micro_steps * candidate.job.ranks
