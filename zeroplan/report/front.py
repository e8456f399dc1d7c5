"""The screen of `zeroplan recommend --objective pareto`: one row for each plan, from the fastest to the leanest."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.plan import label
from zeroplan.report.brief.marks import legend, marks, of_time
from zeroplan.report.console import table
from zeroplan.report.recommend import compared
from zeroplan.report.speed import trust as step_trust
from zeroplan.report.subject import gpus, title, trust
from zeroplan.search import Candidate, Front
from zeroplan.units import GiB, count, gib, seconds

FEW = 5
"""Rows of a short screen."""
WHOLE = 0.095
"""Shares from here on are shown in whole per cent."""


def summary(front: Front) -> Text:
    """The two ends, and how many plans lie between them."""
    first, last = front.rows[0], front.rows[-1]
    what = f"{title(first.job.model)} on {gpus(first.job)}"
    if len(front.rows) == 1:
        return Text(
            f"{what}: {label(first)} is both the fastest and the leanest: {_ends(first)}.", style="bold green"
        )
    return Text(
        f"{what}: {len(front.rows)} plans from {_ends(first)} ({label(first)}) to {_ends(last)} ({label(last)}).",
        style="bold green",
    )


def _ends(row: Candidate) -> str:
    return f"{seconds(row.time.total)} a step in {gib(row.fit.gpu.needed)}"


def details(front: Front, apart: float, *, brief: bool) -> list[RenderableType]:
    """The table, how its rows were chosen, and how one of them becomes a config."""
    first = front.rows[0]
    notes = [f"{_chosen(apart)} Of {compared(front)} none is faster and leaner than a row."]
    if capacity := first.job.cluster.capacity:
        row = front.rows[len(front.rows) // 2]
        notes.append(
            f"To have a row's config, leave out --objective and write as --headroom what it leaves of the card's "
            f"{gib(capacity)}, as in --headroom {_headroom(row, capacity)} for row {len(front.rows) // 2 + 1}."
        )
    if brief:
        used = {*_signs(first)}
        rows = len(front.rows)
        some = sorted({round(at * (rows - 1) / (FEW - 1)) for at in range(FEW)}) if rows > FEW else range(rows)
        said = [f"{rows - len(some)} rows between these: -v has all."] * (rows > FEW)
        below = [Text(note, style="dim") for note in [*said, *notes[1:]]]
        return ["", _table(front, some), *below, legend(first.job, used)]
    step = step_trust(first.job, first.speed) if first.speed else None
    below = [Text(note, style="dim") for note in notes]
    return ["", _table(front, range(len(front.rows))), *below, *trust(first.job), *([step] if step else [])]


def _chosen(apart: float) -> str:
    if not apart:
        return "Every plan that no other beats in both: each row is the fastest that needs less than the row above."
    return (
        f"Each row is the fastest that needs at least {100 * apart:.6g}% less than the row above (--apart); the last "
        "is the leanest."
    )


def _headroom(row: Candidate, capacity: int) -> str:
    """Rounded down, so that the row fits."""
    return f"{(capacity - row.fit.gpu.needed) * 100 // GiB / 100:.2f}GiB"


def _signs(row: Candidate) -> tuple[str, str]:
    """How far sizes and seconds hold."""
    return marks(row.job).needed, of_time(row.job, row.speed)


def _table(front: Front, places: Sequence[int]) -> Table:
    """The table of the rows in these places."""
    first, names = front.rows[0], described(front.rows)
    sizes, times = _signs(first)
    grid = table(["", "plan", f"{sizes}needed", "less", f"{times}step", "slower", f"{times}tokens/s/GPU"])
    grid.columns[1].justify, grid.columns[1].no_wrap = "left", False
    grid.columns[0].justify = "right"
    for place in places:
        number, row, name = place + 1, front.rows[place], names[place]
        less, slower = first.fit.gpu.needed - row.fit.gpu.needed, row.time.total / first.time.total - 1
        each = f"{row.speed.tokens_per_gpu:,.0f}" if row.speed else "-"
        grid.add_row(
            f"{number}", name, gib(row.fit.gpu.needed), gib(less) if less else "-", seconds(row.time.total),
            _share(slower) if number > 1 else "-", each,
        )  # fmt: skip
    return grid


def _share(slower: float) -> str:
    return f"+{slower:.0%}" if slower >= WHOLE else f"+{slower:.2%}"


def described(rows: tuple[Candidate, ...]) -> list[str]:
    """Each strategy in words; where several have the same, with the numbers in which these differ."""
    alike: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        alike.setdefault(label(row), []).append(_numbers(row))
    return [", ".join([label(row), *_that_differ(_numbers(row), alike[label(row)])]) for row in rows]


def _that_differ(own: dict[str, str], all_alike: list[dict[str, str]]) -> list[str]:
    return [text for name, text in own.items() if text and len({other.get(name) for other in all_alike}) > 1]


def _numbers(row: Candidate) -> dict[str, str]:
    strategy = row.strategy
    return {
        "hpz": f"hpZ {strategy.hpz_partition_size}",
        "reduce": f"buckets {count(strategy.reduce_bucket_size)}" if strategy.stage else "",
        "prefetch": f"prefetch {count(strategy.prefetch_bucket_size)}",
        "live": f"{count(strategy.max_live_parameters)} live",
        "sub-groups": f"sub-groups {count(strategy.sub_group_size)}",
        "overlap": "overlap" if strategy.overlaps else "no overlap",
        "contiguous": "contiguous gradients" if strategy.contiguous else "gradients apart",
    }
