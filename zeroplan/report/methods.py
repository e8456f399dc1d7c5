"""The screen of `zeroplan recommend --method`: one row for each way to train, and what the other stage would cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from zeroplan.fit import TIGHT
from zeroplan.plan import label
from zeroplan.report.brief.marks import ASSUMED, least, legend, marks, of_time
from zeroplan.report.console import table
from zeroplan.report.sizing import lacking
from zeroplan.report.subject import gpus, on_host, title
from zeroplan.search import Candidate
from zeroplan.sizing import Lack
from zeroplan.specs.job import Job
from zeroplan.units import count, gb, gib, seconds

NAMES = {"full": "full training", "lora": "LoRA", "qlora": "QLoRA"}


class MethodRow(NamedTuple):
    method: str
    """As --method has it."""
    job: Job
    chosen: Candidate | None
    lack: Lack | None
    other: Candidate | None
    """The plan at stage 3 in place of a lower one, or at stage 2 in place of 3."""

    @property
    def on_host(self) -> list[str]:
        """The memory that a node needs, where the plan offloads."""
        return on_host(self.chosen.job, self.chosen.fit) if self.chosen else []

    @property
    def asks_host(self) -> bool:
        """It does, and nobody said how much a node has."""
        return bool(self.on_host and self.chosen and self.chosen.fit.host.capacity is None)

    @property
    def name(self) -> str:
        """What people call it."""
        return NAMES[self.method]


def summary(rows: Sequence[MethodRow]) -> Text:
    """Which of them fit."""
    what, where = title(rows[0].job.model), gpus(rows[0].job)
    capacity = next((each.chosen.fit.gpu.capacity for each in rows if each.chosen), None)
    where += f" of {gib(capacity)}" if capacity else ""
    tight = [each.name for each in rows if each.chosen and each.chosen.fit.verdict == TIGHT]
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
    sends = rows[0].job.ranks > 1
    head = ["method", "trains", "plan", f"{sizes}needed", f"{times}step", f"{times}tokens/s/GPU"]
    grid = table([*head, *(["sent"] if sends else [])])
    plans = grid.columns[2]
    plans.justify, plans.no_wrap = "left", False
    for each in rows:
        cells = _cells(each)
        grid.add_row(each.name, count(each.job.model.trainable_parameters), *(cells if sends else cells[:4]))
    hosts = [Text(f"{each.name}: {said}.", style="dim") for each in rows for said in each.on_host]
    others = [_other(each) for each in rows if each.other and each.chosen]
    return ["", grid, *hosts, *others, legend(rows[0].job, {sizes, times})]


def _cells(of: MethodRow) -> list[str | Text]:
    if of.chosen is None:
        reason = f"nothing fits: lacks {lacking(of.lack)}" if of.lack else "nothing runs"
        return [Text(reason, style="red")]
    fit, speed = of.chosen.fit.gpu, of.chosen.speed
    rates = [seconds(of.chosen.time.total), f"{speed.tokens_per_gpu:,.0f}"] if speed else ["", ""]
    needed = Text(gib(fit.needed), style="yellow" if fit.verdict == TIGHT else "green")
    return [label(of.chosen), needed, *rates, gb(_sent(of.chosen))]


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
