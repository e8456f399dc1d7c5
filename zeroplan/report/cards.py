"""The screen of `zeroplan recommend` for several cards: one row for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.console import RenderableType
from rich.text import Text

from zeroplan.clock import Speed
from zeroplan.plan import label
from zeroplan.report import training
from zeroplan.report.brief.marks import least, legend, marks, of_time
from zeroplan.report.console import table
from zeroplan.report.sizing import fewest, lacking
from zeroplan.report.subject import gpus, title
from zeroplan.search import Candidate
from zeroplan.sizing import Fewest, Lack
from zeroplan.specs.job import Job
from zeroplan.training import TrainingRun
from zeroplan.units import gib, seconds

if TYPE_CHECKING:
    from zeroplan.emit.folder import WrittenFiles


class CardRow(NamedTuple):
    name: str
    job: Job
    chosen: Candidate | None
    lack: Lack | None
    fewest: Fewest | None
    run: TrainingRun | None = None

    @property
    def good(self) -> bool:
        """Something fits, and ends in time."""
        return self.chosen is not None and (self.run is None or self.run.in_time)

    @property
    def speed(self) -> Speed | None:
        """None where nothing fits or no clock is known."""
        return self.chosen.speed if self.chosen else None

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens/s of one GPU; 0 where nothing fits or no clock is known."""
        return self.speed.tokens_per_gpu if self.speed else 0.0


def summary(rows: Sequence[CardRow], option: str, *, cheapest: bool = False) -> Text:
    """The card that makes most of a GPU; `cheapest`: the first, whose tokens cost least."""
    what = title(rows[0].job.model)
    fitting = [row for row in rows if row.good]
    if not fitting and any(row.chosen for row in rows):
        soonest = min((row for row in rows if row.run), key=lambda row: row.run.seconds if row.run else 0.0)
        assert soonest.run
        return Text(f"{what}: {training.missed(soonest.run)} ({_where(soonest, option)}).", style="bold red")
    if not fitting:
        return Text(f"{what}: nothing fits on any of {', '.join(row.name for row in rows)}.", style="bold red")
    best = fitting[0] if cheapest else max(fitting, key=lambda row: row.tokens_per_gpu)
    assert best.chosen is not None
    each = best.tokens_per_gpu
    rate = f": {each:,.0f} tokens/s per GPU, {each * best.job.ranks:,.0f} in all" if each else ""
    took = f" {training.clause(best.run)}" if best.run else ""
    first = "cheapest" if cheapest else "most per GPU"
    return Text(f"{what}: {first} with {_where(best, option)}, {label(best.chosen)}{rate}.{took}", style="bold green")


def _where(row: CardRow, option: str) -> str:
    return gpus(row.job) if option == "gpus" else f"{gpus(row.job)} of {row.name}"


def details(option: str, rows: Sequence[CardRow], written: WrittenFiles | None) -> list[RenderableType]:
    """One row for each card, and why it takes as many."""
    run = next((row.run for row in rows if row.run), None)
    counts = [] if option == "gpus" else ["GPUs"]
    sizes, times = least(marks(row.job).needed for row in rows), least(of_time(row.job, row.speed) for row in rows)
    rates = [f"{times}tokens/s/GPU"]
    after = [*rates, *training.columns(run)] if run else ["of", f"{times}step", *rates, "in all"]
    grid = table([option.replace("_", "-"), *counts, "plan", f"{sizes}needed", *after])
    plans = grid.columns[1 + len(counts)]
    plans.justify, plans.no_wrap = "left", False
    for row in rows:
        grid.add_row(row.name, *([f"{row.job.ranks:,}"] if counts else []), *_cells(row))
    enough = ((row.name, fewest(row.fewest, row.chosen)) for row in rows if row.fewest and row.chosen)
    why = [Text(f"{name}: {reason}", style="dim") for name, reason in enough]
    saved = [Text(f"Written: {written}.")] if written else []
    return ["", grid, *why, *saved, legend(rows[0].job, {sizes, times})]


def _cells(row: CardRow) -> list[str | Text]:
    if row.chosen is None:
        reason = f"nothing fits: lacks {lacking(row.lack)}" if row.lack else "nothing runs"
        return [Text(reason, style="red")]
    fit, each = row.chosen.fit.gpu, row.tokens_per_gpu
    assert fit.capacity is not None
    known: list[str | Text] = [label(row.chosen), Text(gib(fit.needed), style="green")]
    if row.run:
        return [*known, f"{each:,.0f}", *training.cells(row.run)]
    rates = [seconds(row.chosen.time.total), f"{each:,.0f}", f"{each * row.job.ranks:,.0f}"] if each else []
    return [*known, gib(fit.capacity), *rates]


def common(said: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What was assumed for all rows, then what for some."""
    every = dict.fromkeys(text for row in said for text in row)
    of_all = [text for text in every if all(text in row for row in said)]
    some = "; ".join(text for text in every if text not in of_all)
    return (*of_all, *([f"for some rows: {some}"] if some else []))
