"""A plan of a request: the fastest strategy that fits, or what its goal asks for; and the alternatives to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from zeroplan.catalog.hardware import larger
from zeroplan.costs.ledger import ledger, tiers
from zeroplan.costs.timing import is_timed
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Detail
from zeroplan.plan import (
    Plan,
    Rejected,
    Suggestion,
    label,
    nearest_to_fitting,
    plan,
    sequences_per_gpu,
    suggestion,
    ways_out,
    with_code,
    with_flash,
)
from zeroplan.progress import tell
from zeroplan.request.goal import NOTHING, Goal, card_named
from zeroplan.request.options import Options
from zeroplan.request.request import Request, read_request
from zeroplan.request.strategy import Reading, check_offload, check_operators, read_attention
from zeroplan.request.values import flag
from zeroplan.results.recommend import Recommendation
from zeroplan.search import Candidate
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST
from zeroplan.specs.strategy import FLASH
from zeroplan.specs.training import TrainingRequest

if TYPE_CHECKING:
    from zeroplan.sizing import Fewest
    from zeroplan.training import TrainingRun
    from zeroplan.why import Constraint, Why

ROOM_KEPT = "room kept for what such runs took beside what is counted (--headroom)"


def read_plan(options: Options) -> Request:
    """The request for a plan that fits, where no headroom says otherwise. Raises `ContradictionError`."""
    request = read_request(options, default_params="7B", default_gpus=8)
    if request.cluster.capacity is None:
        raise ContradictionError("no card: write --gpu-mem 80, --gpu h100-80gb or --cluster dgx-h100")
    if request.headroom is not None:
        return request
    return request._replace(comfortable=True, assumed=(*request.assumed, ROOM_KEPT))


def planned(
    options: Options, *, equations: bool = True, rescue: bool = True, fewest: Fewest | None = None,
    constraints: Sequence[Constraint] = (), goal: Goal = NOTHING,
) -> Recommendation:  # fmt: skip
    """One plan, counted line by line. `equations`: each line of its --json has its equation.

    `rescue`: with its neighbours, or ways out when nothing fits. `constraints`: alternatives to set beside it.
    """
    request = read_plan(options)
    job, wanted = request.job(), goal.at(card_named(options))
    check_timed(job, goal)
    tell(f"searching strategies for {job.ranks:,} GPU{'s' if job.ranks > 1 else ''}")
    best = plan(job, request.fixed, reserve=request.reserve, objective=goal.objective, compared=rescue)
    ways: Callable[[], tuple[Suggestion, ...]] = tuple
    if best.chosen is None:
        best = _where_none_fits(request, job, best, goal, rescue=rescue)
        ways = partial(_ways_out, options, request, job, best, goal) if rescue else tuple
    if best.chosen is None and not best.nearest:
        for one in request.jobs():
            ledger(one)  # which says what stops it
    run = _run(best.chosen, wanted) if best.chosen and goal.of_a_run else None
    if fewest and fewest.lack and not best.chosen:
        nearest = fewest.lack.candidate
        best = replace(best, nearest=(Rejected(nearest, nearest.fit.shortage, label(nearest)),))
    alternatives = tuple(_why(request, job, constraint, best) for constraint in constraints)
    if best.chosen:
        held = tiers(best.chosen.job, detail=Detail.KINDS)
        best = replace(best, chosen=replace(best.chosen, held=held))
    assumed = assumed_of(request, job)
    flash = _with_flash(request, best.chosen) if best.chosen and options.attention is None else None
    other = _at_other_stage(request, job, best) if best.chosen and rescue and not constraints else None
    coded = with_code(best.chosen, request.fixed, request.reserve) if best.chosen and rescue else None
    return Recommendation(
        job, best, assumed, request.given, fewest, why=alternatives, headroom=request.headroom, run=run,
        flash=flash, coded=coded if best.objective == FASTEST else None, equations=equations, other_stage=other,
        ways=ways,
    )  # fmt: skip


def _where_none_fits(request: Request, job: Job, failed: Plan, goal: Goal, *, rescue: bool) -> Plan:
    """A plan for all of the card, where none fits with room to spare; else what is nearest to fitting."""
    if request.comfortable:
        of_all = plan(job, request.fixed, reserve=0.0, objective=goal.objective, compared=rescue)
        if of_all.chosen:
            return of_all
    if not rescue:
        return failed
    return replace(failed, nearest=nearest_to_fitting(job, request.fixed, request.reserve))


def _ways_out(options: Options, request: Request, job: Job, best: Plan, goal: Goal) -> tuple[Suggestion, ...]:
    """What would fit with room to spare, where `best` does not."""
    fixed, reserve, may_lack_host = request.fixed, request.reserve, job.cluster.host_memory is not None
    tell("searching what would fit")
    nearest = nearest_to_fitting(job, fixed, reserve) if best.chosen and may_lack_host else best.nearest
    of_host = may_lack_host and any("host" in each.candidate.fit.lacking for each in nearest)
    ways = ways_out(job, fixed, reserve, larger(job.cluster, job.strategy.precision), of_host=of_host)
    return ways if best.chosen else (*_in_4_bit(options, request, goal), *ways)


def _run(chosen: Candidate, wanted: TrainingRequest) -> TrainingRun:
    from zeroplan.training import run_of

    return run_of(chosen, wanted)


def _with_flash(request: Request, chosen: Candidate) -> Rejected | None:
    """What another package would gain; None where the model, the card or the plan do not take it."""
    try:
        check_operators({**request.fixed, "attention": FLASH}, request.model, request.cluster.gpu)
        return with_flash(chosen, request.reserve)
    except ContradictionError:
        return None


def assumed_of(request: Request, job: Job) -> tuple[str, ...]:
    """What nobody stated of a plan: checkpointing and attention are chosen."""
    chosen = [flag(name) for name in ("checkpointing", "attention") if name not in request.fixed]
    assumed = [text for text in request.assumed if not any(f"({name})" in text for name in chosen)]
    return (*assumed, *usual_sequences(request, job))


def usual_sequences(request: Request, job: Job) -> list[str]:
    """The number of sequences in a step that is assumed where nobody stated it."""
    if job.workload.global_batch or {"micro_batch", "grad_accum"} <= request.fixed.keys():
        return []
    return [f"{sequences_per_gpu(job, request.fixed) * job.ranks} sequences a step (--global-batch)"]


def check_timed(job: Job, goal: Goal) -> None:
    """A training run is of a card whose seconds are known. Raises `ContradictionError`."""
    if goal.of_a_run and not is_timed(job):
        raise ContradictionError(
            "--tokens and --price need the seconds of a step, and no card is named; write --gpu h100-80gb"
        )


def _in_4_bit(options: Options, request: Request, goal: Goal) -> tuple[Suggestion, ...]:
    """What would fit where adapters train and nothing does: the same with frozen weights in 4 bit."""
    if request.model.adapter is None or request.model.quantization:
        return ()
    try:
        other = planned(options.replace(quantize="nf4"), equations=False, rescue=False, goal=goal).search_result.chosen
    except ContradictionError:  # of a precision or an architecture
        return ()
    return (suggestion("frozen weights in 4 bit (--quantize nf4)", other),) if other else ()


def _at_other_stage(request: Request, job: Job, best: Plan) -> Why | None:
    """Where adapters train on several GPUs and the stage was free: stage 3 divides frozen weights and gathers them in
    every pass, and lower stages hold them whole. Why the plan is not the other of these.
    """
    from zeroplan.request.alternatives import read_constraint

    assert best.chosen is not None
    if request.model.adapter is None or job.ranks == 1 or "stage" in request.fixed:
        return None
    return _why(request, job, read_constraint("zero-2" if best.chosen.strategy.stage == 3 else "zero-3"), best)


def _why(request: Request, job: Job, constraint: Constraint, best: Plan) -> Why:
    from zeroplan.why import Why, why

    tell(f"why not {constraint.name}")
    try:
        fixed = constraint.fixed(request.fixed)
        check_offload(fixed)
        fixed = dict(Reading(fixed).then(read_attention(fixed, request.model)).fixed)
        check_operators(fixed, request.model, request.cluster.gpu)
    except ContradictionError as error:
        return Why(constraint.name, cannot=str(error))
    return why(job, request.fixed, constraint, best.chosen, reserve=request.reserve, objective=best.objective)
