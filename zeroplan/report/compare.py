"""The screen of `zeroplan compare`: one row for each combination, and how throughput scales with GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from zeroplan.clock import COMMUNICATION, OFFLOAD, Speed
from zeroplan.errors import printable
from zeroplan.fit import TIGHT, Fit
from zeroplan.report.brief.marks import least, legend, marks, of_time
from zeroplan.report.console import console, heading, table
from zeroplan.report.subject import gpus, title
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.job import Job
from zeroplan.units import gib, seconds

BAR = 30
MARK = "!"
"""Before a size that is tight."""
WIDE = 80
"""Columns from which on there is room for all."""


class Combination(NamedTuple):
    changed: dict[str, str]
    """What was written for the options that hold lists."""
    job: Job
    fit: Fit
    speed: Speed
    assumed: tuple[str, ...]
    headroom: Headroom | None = None
    """What of each card is kept free."""

    @property
    def name(self) -> str:
        """What is particular of it, as a sentence says it."""
        others = [f"{_flag(name)} {value}" for name, value in self.changed.items() if name not in ("gpus", "stage")]
        return printable(", ".join([gpus(self.job), f"ZeRO-{self.job.strategy.stage}", *others]))


class Failed(NamedTuple):
    """A combination that cannot run."""

    changed: dict[str, str]
    reason: str


def summary(rows: Sequence[Combination]) -> Text:
    """Which of them makes most of a GPU, among those that fit."""
    what = title(rows[0].job.model)
    running = [row for row in rows if row.fit.possible]
    if not running:
        least = min(rows, key=lambda row: row.fit.gpu.needed)
        return Text(f"{what}: nothing fits. Nearest: {least.name} {least.fit.shortage}.", style="bold red")
    fitting = [row for row in running if row.fit.verdict != TIGHT]
    best = max(fitting or running, key=lambda row: row.speed.tokens_per_gpu)
    rate = f"{best.speed.tokens_per_gpu:,.0f} tokens/s per GPU"
    tight = "" if fitting else f"; it {best.fit.shortage}"
    colour = "green" if fitting else "yellow"
    return Text(f"{what}: most per GPU with {best.name}: {rate}{tight}.", style=f"bold {colour}")


def details(rows: Sequence[Combination | Failed]) -> list[RenderableType]:
    combinations = [row for row in rows if isinstance(row, Combination)]
    names = [name for name in (rows[0].changed if rows else {}) if name != "stage"]
    offloads = any(row.speed.step.offload for row in combinations)
    narrow = console().width < WIDE
    last = [] if narrow else ["traffic", *["offload"] * offloads]
    sizes, times = needed_of(combinations), times_of(combinations)
    columns = ["ZeRO", f"{sizes}needed", f"{times}step", f"{times}tokens/s/GPU", "MFU", *last]
    grid = table([", ".join(map(_flag, names)), *columns])
    for row in combinations:
        label = printable(", ".join(row.changed[name] for name in names))
        cells = _measures(row, offloads=offloads) if row.fit.possible else ["-"] * len(columns)
        grid.add_row(label, str(row.job.strategy.stage), _needed(row), *cells[: len(columns) - 2])
    parts: list[RenderableType] = ["", grid]
    if any(row.fit.verdict == TIGHT for row in combinations):
        parts.append(Text(f"{MARK}: tight, such runs took more than is there.", style="dim"))
    if not all(row.fit.possible for row in combinations):
        parts.append(Text("-: needs more than there is, and takes no step.", style="dim"))
    parts.append(Text("MFU: PaLM's convention. traffic: the share of the step that communication adds.", style="dim"))
    parts.append(legend(combinations[0].job, {sizes, times}))
    parts += [
        Text(printable(f"{', '.join(row.changed.values())}: {row.reason}"), style="yellow")
        for row in rows if isinstance(row, Failed)
    ]  # fmt: skip
    return [*parts, *scaling(combinations)]


def needed_of(rows: Sequence[Combination]) -> str:
    """The sign of sizes: the least sure of them."""
    return least(marks(row.job).needed for row in rows)


def times_of(rows: Sequence[Combination]) -> str:
    return least(of_time(row.job, row.speed) for row in rows)


def _measures(row: Combination, *, offloads: bool) -> list[str]:
    step, used = row.speed.step, row.speed.utilisation
    return [
        seconds(step.total), f"{row.speed.tokens_per_gpu:,.0f}", f"{used[0].value:.0%}" if used else "",
        f"{step.of(COMMUNICATION) / step.total:.0%}", *[f"{step.of(OFFLOAD) / step.total:.0%}"] * offloads,
    ]  # fmt: skip


def scaling(rows: Sequence[Combination]) -> list[RenderableType]:
    """Throughput of one GPU by their number, against that of the fewest that fit."""
    fitting = [row for row in rows if row.fit.possible]
    if set(rows[0].changed) != {"gpus"} or len(fitting) < 2:
        return []
    first = fitting[0].speed.tokens_per_gpu
    most = max(row.speed.tokens_per_gpu for row in fitting)
    grid = table(["GPUs", "tokens/s in all", "of linear", ""])
    grid.columns[3].justify = "left"
    for row in rows:
        each = row.speed.tokens_per_gpu
        if not row.fit.possible:
            grid.add_row(row.changed["gpus"], "does not fit", "", "")
            continue
        bar = "█" * max(1, round((BAR if console().width >= WIDE else BAR // 3) * each / most))
        grid.add_row(row.changed["gpus"], f"{each * row.job.ranks:,.0f}", f"{each / first:.0%}", bar)
    return ["", heading(f"Scaling, against {gpus(fitting[0].job)}"), grid]


def _needed(row: Combination) -> Text:
    tight = row.fit.verdict == TIGHT
    colour = "yellow" if tight else "green" if row.fit.possible else "red"
    return Text(f"{MARK * tight}{gib(row.fit.gpu.needed)}", style=colour)


def _flag(name: str) -> str:
    return name.replace("_", "-")
