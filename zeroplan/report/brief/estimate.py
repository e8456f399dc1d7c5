"""The short screen of `zeroplan estimate`: a row for each stage, or one strategy with its card as a bar."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.costs.ledger import ledger
from zeroplan.fit import fit
from zeroplan.ledger import total
from zeroplan.report.brief.assumed import assumed
from zeroplan.report.brief.card import bar, card, fills, parts, scale
from zeroplan.report.brief.marks import EXACT, legend, marks, of_time
from zeroplan.report.brief.next_command import SETTLED, changed, line
from zeroplan.report.console import console, table
from zeroplan.report.estimate import CountedStrategy, experts_stay_gathered, in_words, largest
from zeroplan.report.subject import gpus, not_counted
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import STAGES
from zeroplan.units import between, gb, gib, seconds

GATHERED, WORTH_SAYING = ("all_gather, forward", "all_gather, backward"), 0.1
"""Terms of a step in which stage 3 waits for weights, and the share of a step from which that is said."""
LEAST_BAR, MOST_BAR = 16, 60
"""Columns of a bar: with fewer it is left out."""
GAP = 2


def details(
    estimates: list[CountedStrategy], said: Sequence[str], typed: Sequence[str]
) -> tuple[list[RenderableType], list[RenderableType]]:
    """What stands below the answer and the scope: the numbers, and what goes on from them."""
    first = estimates[0]
    body = _alone(first) if len(estimates) == 1 else _side_by_side(estimates)
    known = marks(first.job)
    used = {known.needed}
    if len(estimates) == 1:
        used = {*known.of_card, known.host}
    used |= {of_time(one.job, one.speed) for one in estimates if one.speed and one.fit.possible}
    tail = [*_next(estimates, typed), *assumed(said, estimates[-1].real), legend(first.job, used, more=True)]
    return ["", *body, *not_counted(first.job)], tail


def _side_by_side(estimates: list[CountedStrategy]) -> list[RenderableType]:
    """One row each: what the paper says, what DeepSpeed needs, the verdict, the step and the card."""
    capacity = estimates[0].fit.gpu.capacity
    grid = table(["", "paper's states", "DeepSpeed needs", *([""] if capacity else []), *_step_columns(estimates)])
    if capacity:
        grid.columns[3].justify = "left"
    rows: list[list[str | Text]] = []
    for one in estimates:
        needed = f"{marks(one.job).needed}{gib(one.fit.gpu.needed)}"
        cells: list[str | Text] = [f"ZeRO-{one.job.strategy.stage}", gb(total(one.paper.gpu.resident)), needed]
        cells += [*([in_words(one.fit)] if capacity else []), *_step(one, estimates)]
        rows.append(cells)
    width = console().width - _width(grid, rows)
    drawn = min(MOST_BAR, width) if width >= LEAST_BAR else 0
    grid.columns[0].no_wrap = True
    if drawn:
        grid.add_column(f"of {gib(capacity)}" if capacity else "", no_wrap=True)
    filled = [parts(one.real, one.fit) for one in estimates]
    whole = scale(filled, capacity)
    for each, cells in zip(filled, rows, strict=True):
        grid.add_row(*cells, *([bar(each, capacity, drawn, whole)] if drawn else []))
    below = [fills(capacity)] if drawn else []
    steps = _step_columns(estimates)
    return [grid, *below, *[Text(f"a step: {batch(estimates[0].job)}", style="dim") for _column in steps]]


def _width(grid: Table, rows: list[list[str | Text]]) -> int:
    """Columns that a table takes, and the gap before one more."""
    headings = [str(column.header) for column in grid.columns]
    each = zip(headings, *([str(cell) for cell in row] for row in rows), strict=True)
    return sum(max(map(len, cells)) + GAP for cells in each)


def batch(job: Job) -> str:
    """Sequences of a step, by what they come from."""
    strategy = job.strategy
    each = f"micro-batch {strategy.micro_batch} × accumulation {strategy.micro_steps} × {gpus(job)}"
    return f"{each} of {job.workload.seq:,} tokens"


def _step_columns(estimates: list[CountedStrategy]) -> list[str]:
    return ["a step"] if any(one.speed for one in estimates) else []


def _step(one: CountedStrategy, estimates: list[CountedStrategy]) -> list[str]:
    if not _step_columns(estimates):
        return []
    return [f"{of_time(one.job, one.speed)}{seconds(one.speed.step.total)}" if one.speed and one.fit.possible else "-"]


def _alone(one: CountedStrategy) -> list[RenderableType]:
    """The card and its parts, and what else a step needs, in a line each."""
    job, counted, verdict, known = one.job, one.real, one.fit, marks(one.job)
    grid = table(["", ""])
    grid.columns[1].justify, grid.columns[1].no_wrap = "left", False
    peak = counted.gpu.peak
    where = f"{peak.phase.replace('_', ' ')}, {peak.place}"
    strategy = job.strategy
    grid.add_row("batch", f"{batch(job)} = {strategy.micro_batch * strategy.micro_steps * job.ranks} sequences a step")
    grid.add_row("peak", f"{known.peak}{gib(total(peak.lines))} in {where}; most of it {largest(peak)}")
    if peak.phase == "init":
        grid.add_row("held", f"{known.held}{gib(total(counted.gpu.resident))} between steps")
    grid.add_row("ZeRO paper", _paper(one))
    if verdict.host.needed:
        grid.add_row("host", f"{known.host}{between(verdict.host.needed, verdict.host.most)} of a node")
    if verdict.nvme.needed:
        grid.add_row("NVMe", f"{EXACT}{gib(verdict.nvme.needed)} of a node")
    if counted.traffic:
        grid.add_row("sent", f"{known.held}{gb(counted.sent(job.strategy.micro_steps))} by each GPU a step")
    if one.speed and verdict.possible:
        from zeroplan.report.speed import in_one_line

        grid.add_row("step", in_one_line(one.speed, of_time(job, one.speed)))
        if said := _gathers(one):
            grid.add_row("gathers", said)
    shown = [*card(job, counted, verdict), grid]
    if experts_stay_gathered(one):
        shown.append(Text("Experts stay gathered from forward to backward (-v); --checkpointing full ends that."))
    return shown


def _gathers(one: CountedStrategy) -> str:
    """Where adapters train at stage 3 and its gathers of frozen weights make the step long: how long, and what stage 2
    sends and needs, which holds them whole. Empty elsewhere.
    """
    job, micro_steps = one.job, one.job.strategy.micro_steps
    if one.speed is None or job.model.adapter is None or job.strategy.stage != STAGES[-1] or not one.fit.possible:
        return ""
    waited = sum(term.seconds for term in one.speed.step.terms if term.name in GATHERED)
    if waited < WORTH_SAYING * one.speed.step.total:
        return ""
    gathers = (each for each in one.real.traffic if each.collective == "all_gather" and each.when == "micro_step")
    moved = sum(each.wire_bytes * each.times(micro_steps) for each in gathers)
    said = f"{gb(moved)} of weights a step, nearly all of them frozen: {seconds(waited)}"
    return f"{said}; {other}" if (other := _at_stage_2(job)) else said


def _at_stage_2(job: Job) -> str:
    """What the same job sends and needs at stage 2; empty where it does not run there."""
    optimizer = job.strategy.offload_optimizer
    if job.strategy.offload_param or (optimizer and optimizer.device == "nvme"):  # which stage 3 alone does
        return ""
    other = job.at(stage=2)
    counted = ledger(other)
    needed = fit(other, counted).gpu.needed
    return f"stage 2 sends {gb(counted.sent(other.strategy.micro_steps))} and needs {gib(needed)}"


def _paper(one: CountedStrategy) -> str:
    lines = one.paper.gpu.resident
    return f"{gb(total(lines))} of model states: {', '.join(f'{entry.name} {gb(entry.bytes)}' for entry in lines)}"


def _next(estimates: list[CountedStrategy], typed: Sequence[str]) -> list[RenderableType]:
    """A command that goes on from here."""
    if not typed or estimates[0].job.strategy.backend == "cpu":
        return []
    if estimates[0].fit.gpu.capacity is None:
        words = changed(typed, "estimate", "--gpu", "h100-80gb")
        return line(words, "your card: verdict, step time")
    return line(changed(typed, "recommend", without=SETTLED), "the fastest plan, and its config")
