"""How long a step takes, on the screen: the step and its interval, tokens per second, utilisation, where time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.clock import GROUPS, HFU, MFU, MFU_CAUSAL, Speed
from zeroplan.report.console import console, heading, table
from zeroplan.specs.job import Job
from zeroplan.units import seconds

BAR, LEAST_BAR, NUMBERS = 30, 8, 19
"""Columns of the longest bar, where there is room and where there is little; and of numbers and gaps before it."""
UNMEASURED = "23 steps on one H100 beside a slow host took 0.7 to 1.8 times what is counted (docs/evidence.md)."
LEAST = 0.005
"""Share of the step under which a term is not drawn."""
CONVENTIONS = {
    MFU: "6·Ψ + 12·L·q·s FLOP a token: PaLM's convention, attention over all pairs",
    MFU_CAUSAL: "6·Ψ + 6·L·q·s FLOP a token: attention over a token and those before it",
    HFU: "the products and attention that run, those of checkpointing again",
}
"""As the screen has room for them."""
LESS = ", less what frozen weights spare"


def summary(speed: Speed) -> str:
    """A clause for the answer."""
    return f"A step takes about {seconds(speed.step.total)}, {speed.tokens_per_gpu:,.0f} tokens/s per GPU."


def in_one_line(speed: Speed, mark: str) -> str:
    """Seconds with their interval and a sign of how far they hold, tokens per second, and where the time goes."""
    step, low, high = speed.step, seconds(speed.interval.low), seconds(speed.interval.high)
    goes = ", ".join(f"{group} {seconds(step.of(group))}" for group in GROUPS if step.of(group))
    used = f", MFU {speed.utilisation[0].value:.0%}" if speed.utilisation else ""
    return f"{mark}{seconds(step.total)} ({low} to {high}), {speed.tokens_per_gpu:,.0f} tokens/s per GPU{used}: {goes}"


def side_by_side(names: Sequence[str], speeds: Sequence[Speed | None]) -> Table:
    """The step of several strategies, a column each; None for one that does not fit, and takes no step."""
    known = [one for one in speeds if one]
    grid = table(["", *names])

    def row(name: str, of: Callable[[Speed], str], style: str = "") -> None:
        grid.add_row(name, *(of(one) if one else "-" for one in speeds), style=style)

    row("step", lambda one: seconds(one.step.total), "bold")
    row("  from", lambda one: seconds(one.interval.low), "dim")
    row("  to", lambda one: seconds(one.interval.high), "dim")
    for group in GROUPS:
        if any(one.step.of(group) for one in known):
            row(f"  {group}", lambda one, group=group: seconds(one.step.of(group)))  # type: ignore[misc]
    row("tokens/s per GPU", lambda one: f"{one.tokens_per_gpu:,.0f}")
    for index, used in enumerate(known[0].utilisation if known else ()):
        row(used.name, lambda one, index=index: f"{one.utilisation[index].value:.1%}")  # type: ignore[misc]
    return grid


def alone(job: Job, speed: Speed, *, everything: bool) -> list[RenderableType]:
    """The step of one strategy: where the time goes, and for `everything` each term with its formula."""
    cards = f"{job.ranks} GPU{'s' if job.ranks > 1 else ''}"
    batch = f"micro-batch {job.strategy.micro_batch} × accumulation {job.strategy.micro_steps} × {cards}"
    title = f"How long an optimizer step takes ({batch} × {job.workload.seq:,} tokens = {speed.tokens:,} tokens)"
    terms = "Every term of the step (times: how often in a step; of collectives, as far as they show)"
    each: list[RenderableType] = ["", heading(terms), _terms(speed)] if everything else []
    goes = heading("Where the time goes")
    summed = _summary(speed, frozen=bool(job.model.frozen))
    return ["", heading(title), summed, trust(job, speed), "", goes, _bars(speed), *each]


def _summary(speed: Speed, *, frozen: bool) -> Table:
    grid = table(["", ""])
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap = False
    low, high = seconds(speed.interval.low), seconds(speed.interval.high)
    grid.add_row("step", f"{seconds(speed.step.total)}, from {low} to {high}", style="bold")
    grid.add_row("tokens/s", f"{speed.tokens_per_gpu:,.0f} per GPU, {speed.tokens_per_gpu * speed.gpus:,.0f} in all")
    for used in speed.utilisation:
        less = LESS if frozen and used.name != HFU else ""
        grid.add_row(used.name, f"{used.value:.1%}: {CONVENTIONS[used.name]}{less}")
    return grid


def trust(job: Job, speed: Speed) -> Text:
    """What steps were compared with, and what makes the interval as wide as it is."""
    compared = "Nine in ten published steps of dense models lie in such an interval."
    if job.model.shape.experts:
        compared = "No published step of a mixture of experts was compared: the interval is that of dense models."
    return Text(f"{compared} Its width: {speed.interval.reason}. {UNMEASURED}", style="dim")


def _bars(speed: Speed) -> Table:
    """Groups of terms, and of each the terms that are long enough to draw, the longest first."""
    grid = table(["", "", "", ""])
    grid.columns[3].justify = "left"
    whole = speed.step.total
    rows: list[tuple[str, float, str]] = []
    for group in GROUPS:
        if spent := speed.step.of(group):
            rows.append((group, spent, "bold"))
            own = sorted((one for one in speed.step.terms if one.group == group), key=lambda one: -one.seconds)
            rows += [(f"  {entry.name}", entry.seconds, "") for entry in own if entry.seconds > LEAST * whole]
    names = max(len(name) for name, _spent, _style in rows)
    room = console().width - names - NUMBERS
    drawn, grid.columns[0].no_wrap = max(LEAST_BAR, min(BAR, room)), room >= LEAST_BAR
    for name, spent, style in rows:
        bar = "█" * max(1, round(drawn * spent / whole))
        grid.add_row(name, seconds(spent), f"{spent / whole:.0%}", bar, style=style)
    return grid


def _terms(speed: Speed) -> Table:
    grid = table(["", "in all", "times", "formula", "evidence"])
    for index in (3, 4):
        grid.columns[index].justify = "left"
        grid.columns[index].no_wrap = False
    for entry in speed.step.terms:
        grid.add_row(
            entry.name, seconds(entry.seconds), f"{entry.times:,.4g}", entry.provenance.equation, entry.evidence
        )
    return grid
