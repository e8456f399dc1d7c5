"""The screen of `zeroplan diff`: which config needs less and is faster, and what each difference does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from zeroplan.deepspeed.difference import Difference
from zeroplan.deepspeed.effect import Comparison, ConfigChange, Counted, Effect
from zeroplan.deepspeed.idle import NOT_COUNTED
from zeroplan.errors import printable
from zeroplan.report.brief.marks import legend, marks, of_time
from zeroplan.report.console import console, heading, table
from zeroplan.report.subject import gpus, not_counted, title, trust
from zeroplan.units import gb, gib, seconds

SAME_SPEED = 0.0005
"""Share of a rate under which two are called as fast."""
LONGEST, LONGEST_PATH = 40, 200
"""Letters of a value, and of a key with its sections."""
MOST = 1000
"""Keys that are shown of a kind; DeepSpeed knows under 400."""
ROOMY = 96
"""Columns from which on there is room for a table."""
NUMBERS = 62
"""Columns of its numbers; a longer path than the rest takes stands on two lines."""


def _number(value: float) -> str:
    return f"{value:,.0f}"


Column = tuple[str, str, Callable[[float], str]]
RATE = "tokens_per_s_per_gpu"
COLUMNS: tuple[Column, ...] = (
    ("GPU", "needed", gib), ("host", "host", gib), ("NVMe", "nvme", gib), ("calls", "calls", _number),
    ("sent", "sent", gb), ("step", "step", seconds), ("tokens/s/GPU", RATE, _number),
)  # fmt: skip
"""Heading, field of `Effect`, and how it is written."""
LEGEND = (
    "Each change by itself, made to {}. GPU: of each GPU; host and NVMe: of a node; calls: of collectives in an "
    "optimizer step; sent: by one rank in it; {}."
)
BESIDE = "beside the others"


def summary(comparison: Comparison) -> Text:
    """Which of both needs less and is faster, and by how much."""
    first, second = comparison.files
    if not comparison.changes:
        return Text(f"{first} and {second} mean the same to DeepSpeed.", style="bold")
    if not comparison.ends:
        keys = "one key means" if len(comparison.changes) == 1 else f"{len(comparison.changes)} keys mean"
        return Text(f"{first} and {second}: {keys} something else. What that does is counted with --model.",
                    style="bold")  # fmt: skip
    before, after = comparison.ends
    clauses = [_needs(before, after, first), *_host(before, after), *_speed(before, after)]
    short = [f" {name} does not fit: it {end.fit.shortage}." if not end.fit.possible else
             f" {name} {end.fit.shortage}."
             for name, end in zip(comparison.files, comparison.ends, strict=True) if end.fit.fits is False]  # fmt: skip
    text = f"{title(before.job.model)} on {gpus(before.job)}: {second} {_listed(clauses)}.{''.join(short)}"
    return Text(text, style="bold red" if len(short) == 2 else "bold green")


def _listed(clauses: list[str]) -> str:
    return " and ".join([", ".join(clauses[:-1]), clauses[-1]] if clauses[1:] else clauses)


def _needs(before: Counted, after: Counted, first: str) -> str:
    a, b = before.fit.gpu.needed, after.fit.gpu.needed
    if a == b:
        return f"needs as much of each GPU as {first} ({gib(a)})"
    return f"needs {gib(abs(b - a))} {'less' if b < a else 'more'} of each GPU than {first} ({gib(b)}, not {gib(a)})"


def _host(before: Counted, after: Counted) -> list[str]:
    more = after.numbers.less(before.numbers)
    differ = ((more.host, "of a node's memory"), (more.nvme, "of a node's NVMe"))
    return [f"{gib(abs(more))} {'less' if more < 0 else 'more'} {place}" for more, place in differ if more]


def _speed(before: Counted, after: Counted) -> list[str]:
    a, b = before.numbers.tokens_per_s_per_gpu, after.numbers.tokens_per_s_per_gpu
    if a is None or b is None:
        return []
    if abs(b - a) < SAME_SPEED * a:
        return [f"is as fast ({a:,.0f} tokens/s per GPU)"]
    rates = f"({b:,.0f} tokens/s per GPU, not {a:,.0f})"
    if max(a, b) >= 2 * min(a, b):
        return [f"is {b / a:.1f} times as fast {rates}" if b > a else f"takes {a / b:.1f} times as long {rates}"]
    return [f"is {abs(b / a - 1):.1%} {'faster' if b > a else 'slower'} {rates}"]


def details(comparison: Comparison, *, brief: bool) -> list[RenderableType]:
    """Every change with its numbers, and those that change nothing with the reason; `brief`: these by name alone."""
    if not comparison.changes:
        return []
    if not comparison.ends:
        first = (_line(f"{_keys(change)}{_passed_over(change)}") for change in comparison.changes[:MOST])
        return ["", *first, *_others(comparison.changes)]
    idle = [change for change in comparison.changes if change.nothing]
    shown = sorted((change for change in comparison.changes if not change.nothing), key=_weight)
    parts: list[RenderableType] = []
    if shown:
        roomy = console().width >= ROOMY
        parts += ["", *(_table if roomy else _blocks)(comparison, _rows(comparison, shown))]
        same = "=: the same" if roomy else "what is not named stays the same"
        parts.append(Text(LEGEND.format(comparison.files[0], same), style="dim"))
    parts += [_line(f"{_keys(change)}: refused by itself. {change.refused}", "yellow")
              for change in shown if change.alone is None]  # fmt: skip
    for name, uncounted in (("Not counted", True), ("Changes nothing here", False)):
        lines = [_line(f"{_keys(one)}: {', '.join(one.reasons).removeprefix(f'{NOT_COUNTED}: ')}")
                 for one in idle if one.uncounted is uncounted]  # fmt: skip
        parts += ["", heading(name), *lines[:MOST], *_others(lines)] if lines and not brief else []
    if brief:
        end = comparison.ends[1]
        used = {marks(end.job).needed, of_time(end.job, end.speed)}
        return [*parts, *_idle(idle), *not_counted(end.job), *_left_out(comparison), legend(end.job, used)]
    return [*parts, "", *trust(comparison.ends[1].job), *_left_out(comparison)]


def _idle(changes: Sequence[ConfigChange]) -> list[RenderableType]:
    """Keys that change nothing, or are not counted, in a line each kind."""
    parts: list[RenderableType] = []
    for said, uncounted in (("not counted", True), ("changes nothing here", False)):
        of_kind = (change for change in changes if change.uncounted is uncounted)
        names = [_path(one) for change in of_kind for one in change.differences]
        parts += [Text(f"{said}: {', '.join(names[:MOST])}", style="dim")] if names else []
    return parts


def _others(every: Sequence[object]) -> list[RenderableType]:
    """Number of changes beyond those that are shown."""
    more = len(every) - MOST
    return [_line(f"and {more:,} more, which --json has", "dim")] if more > 0 else []


def _left_out(comparison: Comparison) -> list[RenderableType]:
    """What is not counted of the first config alone: `trust` names what is not of the second."""
    first, second = ([*end.job.strategy.not_counted] for end in comparison.ends or ())
    own = [said for said in first if said not in second]
    return [Text(f"Not counted of {comparison.files[0]}: {', '.join(own)}.", style="yellow")] if own else []


def _rows(comparison: Comparison, shown: list[ConfigChange]) -> list[tuple[str, Effect | None]]:
    """What is named, and its numbers; then all together, where that is something else than the one change."""
    rows: list[tuple[str, Effect | None]] = []
    for change in shown:
        only = change.alone is not None and change.alone.nothing
        rows.append((f"{_keys(change)}{f' ({BESIDE})' if only else ''}", change.last if only else change.alone))
    if len(shown) > 1:
        if not comparison.adds_up:
            rows.append((SUM, comparison.added_up))
        rows.append((ALL, comparison.together))
    return rows


SUM, ALL = "sum of these", "all together"


def _weight(change: ConfigChange) -> tuple[float, ...]:
    one = change.alone if change.alone and not change.alone.nothing else change.last
    return (0, 0, 0) if one is None else (-abs(one.needed), -abs(one.host), -abs(one.step or 0))


def _columns(comparison: Comparison, rows: list[tuple[str, Effect | None]]) -> list[Column]:
    """Those in which anything differs; tokens/s say nothing that the step does not where all steps have as many."""
    other_batch = comparison.ends is not None and comparison.ends[0].batch != comparison.ends[1].batch
    columns = [column for column in COLUMNS if any(effect and getattr(effect, column[1]) for _name, effect in rows)]
    return columns if other_batch else [column for column in columns if column[1] != RATE]


def _table(comparison: Comparison, rows: list[tuple[str, Effect | None]]) -> list[RenderableType]:
    columns = _columns(comparison, rows)
    grid = table(["", *(name for name, _field, _written in columns)])
    for name, effect in rows:
        cells = [_cell(effect, field, written) for _name, field, written in columns]
        grid.add_row(_broken(name), *cells, style="bold" if name in (SUM, ALL) else "")
    return [grid, *_not_additive(comparison)]


def _blocks(comparison: Comparison, rows: list[tuple[str, Effect | None]]) -> list[RenderableType]:
    """Where a table has no room: the numbers below each key."""
    parts: list[RenderableType] = []
    for name, effect in rows:
        columns = _columns(comparison, [(name, effect)])
        cells = [(head, _cell(effect, field, written)) for head, field, written in columns]
        parts += [Text(name, style="bold"), _line(", ".join(f"{head} {cell}" for head, cell in cells) or "=")]
    return [*parts, *_not_additive(comparison)]


def _not_additive(comparison: Comparison) -> list[RenderableType]:
    if comparison.adds_up or comparison.added_up is None:
        return []
    return [Text("The changes act on each other: what they do together is not the sum of what each does alone.")]


def _cell(effect: Effect | None, field: str, written: Callable[[float], str]) -> str:
    if effect is None:
        return "-"
    value = getattr(effect, field)
    return "-" if value is None else f"{'+' if value > 0 else '-'}{written(abs(value))}" if value else "="


def _broken(name: str) -> str:
    """A key, the rest of its path where that is long, and its values one below the other."""
    path, separator, values = name.partition(": ")
    if len(path) > console().width - NUMBERS:
        path = "\n  ".join([f"{path.rpartition('.')[0]}.", path.rpartition(".")[2]])
    return f"{path}\n    {values}" if separator else name


def _keys(change: ConfigChange) -> str:
    return ", ".join(f"{_path(one)}: {_value(one, 0)} → {_value(one, 1)}" for one in change.differences)


def _path(one: Difference) -> str:
    """The key on one line, cut when long: in a file anything may be one."""
    path = printable(one.path)
    return path if len(path) <= LONGEST_PATH else f"{path[: LONGEST_PATH - 3]}..."


def _value(one: Difference, which: int) -> str:
    value = (one.a, one.b)[which]
    if one.stated[which]:
        return _written(value)
    return f"{_written(value)} (default)" if value is not None else "not there"


def _written(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) >= 1000:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = json.dumps(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _passed_over(change: ConfigChange) -> str:
    return "" if all(one.known for one in change.differences) else " (DeepSpeed knows no such key)"


def _line(text: str, style: str = "") -> RenderableType:
    return Text(f"  {text}", style=style)
