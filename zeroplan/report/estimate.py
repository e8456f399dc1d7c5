"""The screen of `zeroplan estimate`: the answer, the paper's table, what DeepSpeed needs, what was assumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.categories import Category
from zeroplan.costs.passes import timeline_of
from zeroplan.fit import FITS, TIGHT, Fit, need
from zeroplan.ledger import Ledger, Line, Moment, is_activation, total
from zeroplan.report.console import assumptions, console, heading, table
from zeroplan.report.subject import gpus, on_host, title, trust
from zeroplan.sources import DEEPSPEED
from zeroplan.specs.cluster import NVIDIA
from zeroplan.specs.job import Job
from zeroplan.units import between, gb, gib

if TYPE_CHECKING:
    from zeroplan.clock import Speed

PAIR, SIDE_BY_SIDE = 2, 80
"""Stages in one table at a narrow terminal, and columns from which all four fit."""
EXPERTS_STAY = (
    "Experts' products keep views of the weights that stage 3 gathers, so every layer's experts stay gathered from "
    "forward to backward; with --checkpointing full only those of the layer at work do."
)


class CountedStrategy(NamedTuple):
    """One strategy, counted both ways."""

    job: Job
    paper: Ledger
    real: Ledger
    fit: Fit
    speed: Speed | None = None
    """None where no card is named."""


def details(estimates: list[CountedStrategy], assumed: tuple[str, ...], *, everything: bool) -> list[RenderableType]:
    """The tables of `estimate -v`, for one strategy or for several side by side; `everything`: each line and term."""
    parts: list[RenderableType] = [
        "",
        heading("Model states by the ZeRO paper, per GPU (GB = 10⁹ bytes)"), *_abreast(_paper_table, estimates), "",
        heading(f"What DeepSpeed {DEEPSPEED} needs, per GPU (GiB = 2³⁰ bytes)"), *_abreast(_need_table, estimates),
        *_peak(estimates), *trust(estimates[0].job, whole=timeline_of(estimates[0].job) is not None),
        *_step(estimates, everything=everything),
    ]  # fmt: skip
    if len(estimates) == 1 and everything:
        parts += every_line(estimates[0].real)
    return [*parts, "", *assumptions(assumed)] if assumed else parts


def summary(estimates: list[CountedStrategy]) -> Text:
    """The one sentence the reader came for."""
    job = estimates[0].job
    what = f"{title(job.model)} on {gpus(job)}: "
    capacity = estimates[0].fit.gpu.capacity
    if capacity is None:
        needs = ", ".join(f"{_name(e)} {gib(e.fit.gpu.needed)}" for e in estimates)
        return Text(f"{what}each GPU needs {needs}.", style="bold")
    fitting = [e for e in estimates if e.fit.verdict == FITS]
    clauses = []
    if fitting:
        names = _listed([f"{_name(e)} ({gib(e.fit.gpu.needed)})" for e in fitting])
        clauses.append(f"{names} fit{'s' if len(fitting) == 1 else ''} in {gib(capacity)}")
    if tight := [e for e in estimates if e.fit.verdict == TIGHT]:
        names = _listed([f"{_name(e)} ({_tight(e.fit)})" for e in tight])
        clauses.append(f"{names} {'is' if len(tight) == 1 else 'are'} tight in {gib(capacity)}")
    clauses += [f"{_name(e)} {e.fit.shortage}" for e in estimates if not e.fit.possible]
    clauses += on_host(estimates[-1].job, *(e.fit for e in estimates))
    runs = estimates[0].speed if len(estimates) == 1 and estimates[0].fit.possible else None
    answer = f"{what}{'; '.join(clauses)}."
    if runs:
        from zeroplan.report import speed as step

        answer = f"{answer} {step.summary(runs)}"
    return Text(answer, style=f"bold {_colour(estimates)}")


def held_summary(estimates: list[CountedStrategy]) -> Text:
    """What still holds of a job of which a part is not planned."""
    held = ", ".join(f"{_name(e)} {gib(total(e.real.gpu.resident))}" for e in estimates)
    job = estimates[0].job
    text = f"{title(job.model)} on {gpus(job)}: each GPU holds between steps {held}. No verdict and no step time."
    return Text(text, style="bold yellow")


def held_details(estimates: list[CountedStrategy], assumed: tuple[str, ...]) -> list[RenderableType]:
    """The lines of that, of each stage."""
    grid = table(["held between steps", *map(_name, estimates)])
    names = dict.fromkeys(entry.name for e in estimates for entry in e.real.gpu.resident)
    for name in names:
        sizes = [sum(entry.bytes for entry in e.real.gpu.resident if entry.name == name) for e in estimates]
        grid.add_row(name, *map(gib, sizes))
    grid.add_row("sum", *(gib(total(e.real.gpu.resident)) for e in estimates), style="bold")
    return ["", grid, "", *assumptions(assumed)]


def _colour(estimates: list[CountedStrategy]) -> str:
    verdicts = {e.fit.verdict for e in estimates}
    return "green" if FITS in verdicts else "yellow" if TIGHT in verdicts else "red"


def _tight(verdict: Fit) -> str:
    """Needed, and what such runs took at most, of the tiers that are tight."""
    return ", ".join(
        f"{need(verdict, key)}, such runs took up to {gib(verdict.tiers[key].most)}" for key in verdict.tight
    )


def _step(estimates: list[CountedStrategy], *, everything: bool) -> list[RenderableType]:
    """The time of a step, where a card is named."""
    from zeroplan.report import speed as step

    if len(estimates) == 1:
        speed = estimates[0].speed
        return step.alone(estimates[0].job, speed, everything=everything) if speed else []
    known = [entry.speed for entry in estimates if entry.fit.possible and entry.speed]
    if not known:
        return []

    def side_by_side(some: list[CountedStrategy]) -> Table:
        speeds = [entry.speed if entry.fit.possible else None for entry in some]
        return step.side_by_side([_name(entry) for entry in some], speeds)

    tables = _abreast(side_by_side, estimates)
    return ["", heading("How long an optimizer step takes"), *tables, step.trust(estimates[0].job, known[0])]


def _name(estimate: CountedStrategy) -> str:
    return f"ZeRO-{estimate.job.strategy.stage}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _abreast(made: Callable[[list[CountedStrategy]], Table], estimates: list[CountedStrategy]) -> list[Table]:
    """All stages side by side, or two at a time where the terminal would fold their names."""
    if len(estimates) <= PAIR or console().width >= SIDE_BY_SIDE:
        return [made(estimates)]
    return [made(estimates[at : at + PAIR]) for at in range(0, len(estimates), PAIR)]


def _paper_table(estimates: list[CountedStrategy]) -> Table:
    grid = table(["", *map(_name, estimates)])
    for index, entry in enumerate(estimates[0].paper.gpu.resident):
        grid.add_row(entry.name, *(gb(e.paper.gpu.resident[index].bytes) for e in estimates))
    grid.add_row("sum", *(gb(total(e.paper.gpu.resident)) for e in estimates), style="bold")
    return grid


def _need_table(estimates: list[CountedStrategy]) -> Table:
    grid = table(["", *map(_name, estimates)])
    grid.add_row("held between steps", *(gib(total(e.real.gpu.resident)) for e in estimates))
    rows = [("+ gradients and buffers", "buffers"), ("+ activations", "activations")]
    beside = [e.real.gpu.beside(e.real.gpu.peak) for e in estimates]
    for label, kind in rows:
        grid.add_row(label, *(gib(sum(x.bytes for x in lines if _kind(x) == kind)) for lines in beside))
    grid.add_row("peak", *(gib(total(e.real.gpu.peak.lines)) for e in estimates), style="bold")
    grid.add_row("  in", *(e.real.gpu.peak.phase.replace("_", " ") for e in estimates), style="dim")
    for index, entry in enumerate(estimates[0].fit.outside):
        grid.add_row(f"+ {entry.name}", *(gib(e.fit.outside[index].bytes) for e in estimates))
    grid.add_row("needed", *(gib(e.fit.gpu.needed) for e in estimates), style="bold")
    if estimates[0].fit.gpu.capacity is not None:
        grid.add_row(f"free of {gib(estimates[0].fit.gpu.capacity)}", *(_free(e) for e in estimates))
        grid.add_row("verdict", *(in_words(e.fit) for e in estimates))
    if any(e.real.traffic for e in estimates):
        grid.add_row("sent by each GPU a step", *(gb(e.real.sent(e.job.strategy.micro_steps)) for e in estimates))
    if any(e.fit.host.needed for e in estimates):
        grid.add_row("host memory per node", *(gib(e.fit.host.needed) for e in estimates))
        grid.add_row("  up to", *(gib(e.fit.host.most) for e in estimates), style="dim")
    if any(e.real.nvme.resident for e in estimates):
        grid.add_row("NVMe per node", *(gib(e.fit.nvme.needed) for e in estimates))
    _add_levels(grid, estimates)
    return grid


def _add_levels(grid: Table, estimates: list[CountedStrategy]) -> None:
    """What other instruments would show, from the least to the most that published runs did."""
    from zeroplan.levels import RESERVED, USED, USED_ON_OTHERS, shown_by

    levels = [shown_by(e.job, e.real) for e in estimates]
    if not all(levels):
        return
    used = USED if estimates[0].job.cluster.maker == NVIDIA else USED_ON_OTHERS
    for index, label in ((1, RESERVED), (2, used)):
        grid.add_row(label, *(between(each[index].low, each[index].high) for each in levels), style="dim")


def _peak(estimates: list[CountedStrategy]) -> list[RenderableType]:
    """Where the peak of a single strategy is and what makes most of it."""
    if len(estimates) > 1:
        return []
    peak = estimates[0].real.gpu.peak
    parts: list[RenderableType] = [
        Text(f"Largest at the peak ({peak.phase.replace('_', ' ')}, {peak.place}): {largest(peak)}.")
    ]
    if experts_stay_gathered(estimates[0]):
        parts.append(Text(EXPERTS_STAY, style="yellow"))
    return parts


def largest(peak: Moment) -> str:
    """The three largest lines of a moment; of two under one name the dtypes too."""
    names = [entry.name for entry in peak.largest]
    return ", ".join(
        f"{entry.name}{f' ({entry.dtype})' if names.count(entry.name) > 1 and entry.dtype else ''} {gib(entry.bytes)}"
        for entry in peak.largest
    )


def experts_stay_gathered(estimate: CountedStrategy) -> bool:
    """Grouped products save views of their weights, whose storage then outlives DeepSpeed's release in forward."""
    strategy = estimate.job.strategy
    first = estimate.real.gpu.peak.largest[0].name
    return (
        strategy.stage == 3 and strategy.checkpointing == "none" and estimate.job.model.shape.experts > 0
        and first == "gathered parameters"
    )  # fmt: skip


def in_words(verdict: Fit) -> Text:
    """The verdict in words, coloured."""
    said = str(verdict.verdict).replace("_", " ")
    return Text(said, style={FITS: "green", TIGHT: "yellow"}.get(verdict.verdict or "", "red"))


def _free(estimate: CountedStrategy) -> Text:
    headroom = estimate.fit.gpu.headroom
    assert headroom is not None
    if headroom < 0:
        return Text(f"-{gib(-headroom)}", style="red")
    return Text(f"+{gib(headroom)}", style="green")


def _kind(entry: Line) -> str:
    return "activations" if is_activation(entry) else "buffers"


def every_line(counted: Ledger) -> list[RenderableType]:
    """What a GPU holds, sends and copies, each with its formula."""
    lines: list[RenderableType] = ["", heading("Every line, per GPU"), _lines_table(counted)]
    return [*lines, *_traffic(counted), *_copies(counted)]


def _lines_table(counted: Ledger) -> Table:
    grid = table(["", "size", "formula", "counts in"])
    for index in (2, 3):
        grid.columns[index].justify = "left"
        grid.columns[index].no_wrap = False
    for entry, phases in counted.gpu.lines():
        grid.add_row(entry.name, gib(entry.bytes), _formula(entry), " ".join(phases).replace("_", "-"))
    return grid


def _formula(entry: Line) -> str:
    """The equation, or where there is none the count itself."""
    return entry.worked if isinstance(entry.rule, Category) else entry.formula


def _traffic(counted: Ledger) -> list[RenderableType]:
    if not counted.traffic:
        return []
    grid = table(["collective", "when", "ranks", "calls", "tensors", "sent by one rank"])
    for transfer in counted.traffic:
        name, when = f"{transfer.collective} {transfer.dtype}", transfer.when.replace("_", "-")
        amounts = f"{transfer.calls:,}", gb(transfer.bytes), gb(transfer.wire_bytes)
        grid.add_row(name, when, str(transfer.ranks), *amounts)
    return ["", heading("What each rank takes part in"), grid]


def _copies(counted: Ledger) -> list[RenderableType]:
    """What offload moves between the tiers."""
    if not counted.copies:
        return []
    grid = table(["", "from", "to", "a step", "formula"])
    for index in (1, 2, 4):
        grid.columns[index].justify = "left"
    names = {"gpu": "GPU", "host": "host", "nvme": "NVMe"}
    for entry in counted.copies:
        line = entry.line
        grid.add_row(line.name, names[entry.source], names[entry.target], gb(line.bytes), _formula(line))
    return ["", heading("What each rank copies between GPU, host and NVMe"), grid]
