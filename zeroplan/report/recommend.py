"""The screen of `zeroplan recommend`: the plan, what each alternative lost by, and what was assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zeroplan.costs.timing.speed import speed_of
from zeroplan.emit.checkpointing import in_the_script
from zeroplan.emit.trainer import training_arguments
from zeroplan.fit import PLACES, TIGHT
from zeroplan.plan import Plan, Rejected, Suggestion, label
from zeroplan.report import training, why
from zeroplan.report.console import assumptions, heading, table
from zeroplan.report.settings import plan_rows
from zeroplan.report.speed import trust as step_trust
from zeroplan.report.subject import gpus, on_host, title, trust
from zeroplan.search import Candidate, Front, SearchSummary
from zeroplan.specs.job import Job
from zeroplan.specs.objective import LEAST_MEMORY
from zeroplan.units import gib

if TYPE_CHECKING:
    from zeroplan.emit.folder import WrittenFiles
    from zeroplan.training import TrainingRun
    from zeroplan.why import Why

MOST_ROWS = 12


def details(
    plan: Plan,
    assumed: tuple[str, ...],
    target: str,
    given: dict[str, Any] | None = None,
    written: WrittenFiles | None = None,
    run: TrainingRun | None = None,
    outside: Sequence[Rejected] = (),
    other_stage: Why | None = None,
    ways: Sequence[Suggestion] = (),
) -> list[RenderableType]:
    """The tables of `recommend -v`; `outside`: what another package or lines of code would gain; `other_stage`: why the
    plan is not at another stage; `ways`: what would fit.
    """
    parts: list[RenderableType] = [""]
    if plan.chosen:
        name = "The plan" if run is None or run.in_time else "The fastest plan"
        parts += [heading(name), _plan_table(plan.chosen, run), *trust(plan.chosen.job), _step_trust(plan.chosen), ""]
    if plan.rejected:
        others = "Why the others lost, each with one thing changed" if plan.chosen else "Nearest to fitting"
        parts += [heading(others), _others(plan)]
        stage = [why.in_one_line(other_stage)] if other_stage else []
        parts += [searched(plan), *stage, *map(_outside, outside), ""]
    if ways:
        parts += [heading("What would fit"), *(Text(f"  {way.change}") for way in ways), _predicted(), ""]
    if plan.chosen and target == "hf":
        arguments = ", ".join(f"{key}={value}" for key, value in training_arguments(plan.chosen.job, given).items())
        parts += [Text(f'TrainingArguments({arguments}, deepspeed="ds_config.json")'), ""]
    if plan.chosen and target != "hf" and plan.chosen.strategy.checkpointing != "none":
        parts += [Text(who_turns_on(plan.chosen.strategy.checkpointing)), ""]
    if plan.chosen and (run is None or run.in_time):
        hint = "Write the config: add -o ds_config.json (--for deepspeed for every value), or all with --dir plan."
        parts.append(Text(f"Written: {written}." if written else hint))
    return parts + assumptions(assumed)


def _predicted() -> Text:
    """How far the speeds of ways out hold."""
    return Text("Speeds are predicted, another card's with this one's links; no step was measured.", style="dim")


def summary(job: Job, plan: Plan, run: TrainingRun | None = None) -> Text:
    what = f"{title(job.model)} on {gpus(job)}"
    if plan.chosen is None:
        nearest = plan.nearest[0]
        return Text(f"{what}: nothing fits. Nearest: {label(nearest.candidate)} {nearest.reason}.", style="bold red")
    fit = plan.chosen.fit.gpu
    room = f" of {gib(fit.capacity)}" if fit.capacity is not None else ""
    if run and not run.in_time:
        return Text(f"{what}: {training.missed(run)} ({label(plan.chosen)}).", style="bold red")
    took = f" {training.clause(run)}" if run else ""
    tight = plan.chosen.fit.verdict == TIGHT
    clauses = [f"{gib(fit.needed)}{room} per GPU", *on_host(plan.chosen.job, plan.chosen.fit)]
    unknown = len(clauses) > 1 and plan.chosen.fit.host.capacity is None
    fits = "Fits, if the node's memory does: " if unknown else "Fits: "
    verdict = "Tight: " if tight else fits if room else ""
    text = f"{what}: {label(plan.chosen)}. {verdict}{'; '.join(clauses)}."
    if tight:
        tiers = plan.chosen.fit.tiers
        most = " and ".join(f"{gib(tiers[key].most)} of {PLACES[key]}" for key in plan.chosen.fit.tight)
        took += f" Such runs took up to {most}; --accept tight takes it."
    return Text(text + took, style=f"bold {'yellow' if tight or unknown else 'green'}")


def who_turns_on(kind: str) -> str:
    """ds_config.json has no key that turns checkpointing on; a plan that needs it says who does."""
    return (
        f"The config has no key for checkpointing: turn it on in the training script ({in_the_script(kind)}), "
        f"and check the config with --checkpointing {kind}."
    )


def _plan_table(chosen: Candidate, run: TrainingRun | None) -> Table:
    grid = table(["", ""])
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap = False
    for name, value in plan_rows(chosen, run):
        grid.add_row(name, value)
    return grid


def _step_trust(chosen: Candidate) -> Text:
    return step_trust(chosen.job, speed_of(chosen.job, chosen.time))


def searched(plan: Plan) -> Text:
    """What was compared, and that nothing of it is better."""
    better = "fits" if plan.chosen is None else "needs less" if plan.objective == LEAST_MEMORY else "is faster"
    return Text(f"Of {compared(plan.searched)} none {better}.", style="dim")


def compared(searched: SearchSummary | Front) -> str:
    """How many configurations there are and what became of them."""
    one = searched.evaluated == 1
    return (
        f"{searched.configurations:,} configurations (stage, offload, checkpointing, attention, micro-batch), of which "
        f"{searched.without_room:,} ha{'s' if searched.without_room == 1 else 've'} no room and {searched.evaluated:,} "
        f"strateg{'y was' if one else 'ies were'} counted and timed,"
    )


def _outside(rejected: Rejected) -> Text:
    return Text(f"With {rejected.change} this plan {rejected.reason}.")


def _others(plan: Plan) -> Table:
    grid = table(["", ""])
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap = False
    for rejected in plan.rejected[:MOST_ROWS]:
        grid.add_row(rejected.change, rejected.reason)
    return grid
