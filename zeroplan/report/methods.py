"""The screen of `zeroplan recommend --method`: one row for each way to train, and what the other stage would cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from zeroplan.fit import TIGHT
from zeroplan.plan import label
from zeroplan.report import training
from zeroplan.report.brief.marks import ASSUMED, least, legend, marks, of_time
from zeroplan.report.brief.next_command import changed, line
from zeroplan.report.console import table
from zeroplan.report.sizing import lacking
from zeroplan.report.subject import gpus, title
from zeroplan.search import Candidate
from zeroplan.sizing import Lack
from zeroplan.specs.job import Job
from zeroplan.training import TrainingRun
from zeroplan.units import between, count, gb, gib, seconds

NAMES = {"full": "full training", "lora": "LoRA", "qlora": "QLoRA"}
SHORT = {"full": "full"}
"""Names in a table, which has little room."""


class MethodRow(NamedTuple):
    method: str
    """As --method has it."""
    job: Job
    chosen: Candidate | None
    lack: Lack | None
    other: Candidate | None
    """The plan at stage 3 in place of a lower one, or at stage 2 in place of 3."""
    run: TrainingRun | None = None
    """The whole training run, where its tokens or a price were said."""

    @property
    def offloads(self) -> bool:
        strategy = self.chosen.job.strategy if self.chosen else None
        return bool(strategy and (strategy.offload_optimizer or strategy.offload_param))

    @property
    def asks_host(self) -> bool:
        """It does, and nobody said how much memory a node has."""
        return bool(self.offloads and self.chosen and self.chosen.fit.host.capacity is None)

    @property
    def is_tight(self) -> bool:
        return self.chosen is not None and self.chosen.fit.verdict == TIGHT

    @property
    def untaken(self) -> set[str]:
        """Options of the other methods, which this one alone does not take."""
        bits, adapters = {"--quantize", "--double-quant", "--quant-storage"}, {"--lora", "--lora-targets", "--adapter"}
        return {"full": bits | adapters, "lora": bits}.get(self.method, set())

    @property
    def name(self) -> str:
        """What people call it."""
        return NAMES[self.method]


def summary(rows: Sequence[MethodRow]) -> Text:
    """Which of them fit."""
    what, where = title(rows[0].job.model), gpus(rows[0].job)
    capacity = next((each.chosen.fit.gpu.capacity for each in rows if each.chosen), None)
    where += f" of {gib(capacity)}" if capacity else ""
    tight = [each.name for each in rows if each.is_tight]
    sure = [each.name for each in rows if each.chosen and not each.asks_host and each.name not in tight]
    unsure = [each.name for each in rows if each.asks_host and each.name not in tight]
    fails = [each.name for each in rows if not each.chosen]
    if not sure and not unsure and not tight:
        return Text(f"{what} on {where}: nothing fits, neither {' nor '.join(fails)}.", style="bold red")
    parts = [f"{joined(sure)} {'fits' if len(sure) == 1 else 'fit'}"] if sure else []
    parts += [f"{joined(unsure)} if the node's memory does"] if unsure else []
    parts += [f"{joined(tight)} {'is' if len(tight) == 1 else 'are'} tight"] if tight else []
    parts += [f"{joined(fails)} {'does' if len(fails) == 1 else 'do'} not"] if fails else []
    return Text(f"{what} on {where}: {'; '.join(parts)}.", style=f"bold {'green' if sure else 'yellow'}")


def joined(names: Sequence[str]) -> str:
    """With commas, and the last with `and`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def details(rows: Sequence[MethodRow]) -> list[RenderableType]:
    """What each needs, how long it takes and what it sends; and the other stage of adapters."""
    sizes = least(marks(each.job).needed for each in rows)
    times = least([of_time(each.chosen.job, each.chosen.speed) for each in rows if each.chosen] or [ASSUMED])
    run = next((each.run for each in rows if each.run), None)
    sends = rows[0].job.ranks > 1 and run is None
    after = [f"{times}tokens/s/GPU", *training.columns(run)] if run else [f"{times}step", f"{times}tokens/s/GPU"]
    grid = table(["method", "trains", "plan", f"{sizes}needed", *after, *(["sent"] if sends else [])])
    plans = grid.columns[2]
    plans.justify, plans.no_wrap = "left", False
    for each in rows:
        cells = [*_cells(each), *([gb(_sent(each.chosen))] if sends and each.chosen else [])]
        grid.add_row(SHORT.get(each.method, each.name), count(each.job.model.trainable_parameters), *cells)
    others = [_other(each) for each in rows if each.other and each.chosen]
    return ["", grid, *_hosts(rows), *others, legend(rows[0].job, {sizes, times})]


def _hosts(rows: Sequence[MethodRow]) -> list[RenderableType]:
    """The memory that a node needs under each plan that offloads."""
    fits = [(each.name, each.chosen.fit.host) for each in rows if each.chosen and each.offloads]
    if not fits:
        return []
    capacity = fits[0][1].capacity
    size = f" ({gib(capacity)})" if capacity is not None else ", whose size is not given (--host-mem)"
    needs = ", ".join(f"{name} {between(host.needed, host.most)}" for name, host in fits)
    return [Text(f"Host memory of each node{size}: {needs}.", style="dim")]


def _cells(of: MethodRow) -> list[str | Text]:
    if of.chosen is None:
        reason = f"nothing fits: lacks {lacking(of.lack)}" if of.lack else "nothing runs"
        return [Text(reason, style="red")]
    fit, speed = of.chosen.fit.gpu, of.chosen.speed
    needed = Text(gib(fit.needed), style="yellow" if fit.verdict == TIGHT else "green")
    rate = f"{speed.tokens_per_gpu:,.0f}" if speed else ""
    if of.run:
        return [label(of.chosen), needed, rate, *training.cells(of.run)]
    return [label(of.chosen), needed, seconds(of.chosen.time.total) if speed else "", rate]


def next_command(rows: Sequence[MethodRow], typed: Sequence[str]) -> list[RenderableType]:
    """The command that writes the plan of the first method that fits: for certain, if the node's memory does, or
    tightly.
    """
    fitting = [each for each in rows if each.chosen and (each.run is None or each.run.in_time)]
    if not typed or not fitting:
        return []
    first = min(fitting, key=lambda each: (each.is_tight, each.asks_host))
    if "--adapter" in typed and "--adapter" in first.untaken:  # which may be what names the model
        return []
    accepted = ("--accept", "tight") if first.is_tight and "--accept" not in typed else ()
    words = changed(typed, "recommend", *accepted, "--method", first.method, "--dir", "plan", without=first.untaken)
    return line(words, f"{first.name}: config, train.py, scripts")


def _other(of: MethodRow) -> Text:
    """At stage 3 frozen weights are gathered two or three times in a step; below they stay where they are."""
    assert of.other
    assert of.chosen
    here, there = of.chosen, of.other
    more = there.time.total - here.time.total
    stages = f"{of.name} at ZeRO-{there.job.strategy.stage}"
    sent = f"each GPU sends {gb(_sent(there))} a step, not {gb(_sent(here))}"
    needs = f"needs {gib(there.fit.gpu.needed)}{', which is tight' * (there.fit.verdict == TIGHT)}"
    pace = f"{seconds(abs(more))} a step {'slower' if more > 0 else 'faster'}"
    return Text(f"{stages}: {pace}, {sent}; {needs}.", style="dim")


def _sent(of: Candidate) -> int:
    return of.ledger.sent(of.job.strategy.micro_steps)
