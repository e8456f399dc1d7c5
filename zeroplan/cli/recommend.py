"""`zeroplan recommend`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zeroplan.catalog.hardware import larger
from zeroplan.cli.goal import NOTHING, Goal, card_named
from zeroplan.cli.options import Options, flag
from zeroplan.cli.output import Output
from zeroplan.cli.progress import tell, watched
from zeroplan.cli.request import Request, check_offload, read_request
from zeroplan.cli.request_operators import check_operators, choose_attention
from zeroplan.cli.screen import View, exit_code, show
from zeroplan.cli.several import AUTO, cards_named
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.rates import is_timed
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Detail
from zeroplan.plan import Plan, Rejected, label, per_gpu, plan, with_code, with_flash
from zeroplan.results.recommend import Recommendation
from zeroplan.search import Candidate
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST, FEWEST_GPUS, LEAST_MEMORY, PARETO
from zeroplan.specs.strategy import FLASH
from zeroplan.specs.training import TrainingRequest

if TYPE_CHECKING:
    from zeroplan.sizing import Fewest
    from zeroplan.training import TrainingRun
    from zeroplan.why import Constraint, Why

ROOM_KEPT = "room kept for what such runs took beside what is counted (--headroom)"


def run(
    options: Options, output: Output, *, view: View, max_params: bool, alternatives: Sequence[str] = (),
    goal: Goal = NOTHING,
) -> int:  # fmt: skip
    """0 with a plan, 1 when nothing fits, or nothing in time, or a plan is tight and not accepted."""
    if max_params:
        from zeroplan.cli.largest import asked as largest

        if alternatives:
            raise ContradictionError("--why asks about a plan and --max-params makes none; write --params SIZE")
        if goal != NOTHING:
            raise ContradictionError("--max-params makes no plan to train with; leave out --tokens, --price and others")
        if output.file is not None or output.folder is not None:
            none = "-o and --dir write a plan and --max-params makes none"
            raise ContradictionError(f"{none}; write --params SIZE in its place")
        with watched("recommend --max-params"):
            sizes = largest(options)
        return show(sizes, view, accept=options.accept)
    output.check(json=view.json)
    if goal.objective == PARETO and (output.file is not None or output.folder is not None):
        raise ContradictionError(
            "-o and --dir write one plan and --objective pareto makes several; write --headroom as the table says"
        )
    if alternatives and output.file == "-":
        raise ContradictionError("--why and -o - both want standard output; write -o ds_config.json")
    with watched("recommend"):
        answer = asked(options, lines=view.json, alternatives=alternatives, goal=goal)
    answer.target, answer.written = output.target, output.write(answer, options)
    if view.json or output.file != "-" or exit_code(answer.verdict, options.accept):
        return show(answer, view, accept=options.accept, errors=output.file == "-")
    return 0  # with -o - standard output holds the config and nothing else


def asked(
    options: Options, *, lines: bool = True, alternatives: Sequence[str] = (), goal: Goal = NOTHING
) -> Recommendation:
    """What these options ask for: one plan, or one for each card. `alternatives`: names as behind --why."""
    constraints = _constraints(alternatives)
    if goal.objective == FEWEST_GPUS:
        from zeroplan.cli.fewest import as_few_as_are_enough

        options, goal = as_few_as_are_enough(options), goal._replace(objective=FASTEST)
    several, counts = cards_named(options), options.gpus == AUTO
    if options.config == "-" and (several or counts):
        raise ContradictionError("--config - can be read once, and each card or number of GPUs reads it; name a file")
    _check_objective(goal, several=bool(several), counts=counts, alternatives=bool(alternatives))
    if several or (counts and goal.cheapest):
        from zeroplan.cli import cards

        return cards.asked(options, several, goal) if several else cards.cheapest_number(options, goal)
    found = None
    if counts:
        from zeroplan.cli.fewest import counted, fewest_gpus

        found = fewest_gpus(options, goal)
        options = counted(options, found)
    if goal.objective == PARETO and (found is None or found.gpus is not None):
        from zeroplan.cli import front

        row_by_row = front.asked(options, goal, found)
        if row_by_row:
            return row_by_row
    rescue = found is None or found.gpus is not None
    answer = planned(options, lines=lines, rescue=rescue, fewest=found, constraints=constraints, goal=goal)
    if found is None and answer.run and not answer.run.in_time:
        answer.in_time = _in_time(options, goal)
    return answer


def _constraints(alternatives: Sequence[str]) -> list[Constraint]:
    if not alternatives:
        return []
    from zeroplan.cli.why import read_constraints

    return read_constraints(alternatives)


def _check_objective(goal: Goal, *, several: bool, counts: bool, alternatives: bool) -> None:
    if several and goal.objective in (LEAST_MEMORY, PARETO):
        raise ContradictionError(f"--objective {goal.objective}: found several cards, expected one; write one of them")
    if alternatives and goal.objective == PARETO:
        raise ContradictionError("--why asks about one plan and --objective pareto makes several; leave one out")
    if alternatives and (several or (counts and goal.cheapest)):
        raise ContradictionError("--why asks about one plan; write one card, and one number with --objective cheapest")


def read(options: Options) -> Request:
    """The request for a plan that fits, where no headroom says otherwise. Raises `ContradictionError`."""
    request = read_request(options, default_params="7B", default_gpus=8)
    if request.cluster.capacity is None:
        raise ContradictionError("no card: write --gpu-mem 80, --gpu h100-80gb or --cluster dgx-h100")
    if request.headroom is not None:
        return request
    return request._replace(comfortable=True, assumed=(*request.assumed, ROOM_KEPT))


def planned(
    options: Options, *, lines: bool = True, rescue: bool = True, fewest: Fewest | None = None,
    constraints: Sequence[Constraint] = (), goal: Goal = NOTHING,
) -> Recommendation:  # fmt: skip
    """One plan, counted line by line, with each line's equation unless `lines` is False.

    `rescue`: with its neighbours, or ways out when nothing fits. `constraints`: alternatives to set beside it.
    """
    request = read(options)
    job, wanted = request.job(), goal.at(card_named(options))
    check_timed(job, goal)
    tell(f"searching strategies for {job.ranks:,} GPU{'s' if job.ranks > 1 else ''}")
    found = plan(
        job, request.fixed, reserve=request.reserve, rescue=rescue, objective=goal.objective,
        cards=lambda: larger(job.cluster, job.strategy.precision),
    )  # fmt: skip
    if found.chosen is None and request.comfortable:
        found = _tight(request, job, found, goal)
    run = _run(found.chosen, wanted) if found.chosen and goal.asked else None
    if fewest and fewest.lack and not found.chosen:
        nearest = fewest.lack.candidate
        found = found._replace(rejected=(Rejected(nearest, nearest.fit.shortage, label(nearest)),))
    alternatives = tuple(_why(request, job, constraint, found) for constraint in constraints)
    if found.chosen:
        detail = Detail.EQUATIONS if lines else Detail.KINDS
        found = found._replace(chosen=found.chosen._replace(ledger=ledger(found.chosen.job, detail=detail)))
    assumed = assumed_of(request, job)
    flash = _with_flash(request, found.chosen) if found.chosen and options.attention is None else None
    coded = with_code(found.chosen, request.fixed, request.reserve) if found.chosen and rescue else None
    return Recommendation(
        job, found, assumed, request.given, fewest, why=alternatives, headroom=request.headroom, run=run,
        flash=flash, coded=coded if found.objective == FASTEST else None,
    )  # fmt: skip


def _tight(request: Request, job: Job, failed: Plan, goal: Goal) -> Plan:
    """A plan for all of the card, where none fits with room to spare; what would fit is said beside it."""
    found = plan(
        job, request.fixed, reserve=0.0, rescue=bool(failed.rejected), objective=goal.objective,
        ways_out=False,
    )  # fmt: skip
    return found._replace(ways_out=failed.ways_out) if found.chosen else failed


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
    """How many a step has where nobody stated it."""
    if job.workload.global_batch or {"micro_batch", "grad_accum"} <= request.fixed.keys():
        return []
    return [f"{per_gpu(job, request.fixed) * job.ranks} sequences a step (--global-batch)"]


def check_timed(job: Job, goal: Goal) -> None:
    """A training run is of a card whose seconds are known. Raises `ContradictionError`."""
    if goal.asked and not is_timed(job):
        raise ContradictionError(
            "--tokens and --price need the seconds of a step, and no card is named; write --gpu h100-80gb"
        )


def _in_time(options: Options, goal: Goal) -> Fewest | None:
    """The fewest GPUs that make the deadline; None where their number follows from something else."""
    from zeroplan.cli.fewest import fewest_gpus

    if options.hostfile is not None or options.config == "-":
        return None
    try:
        return fewest_gpus(options, goal)
    except ContradictionError:
        return None


def _why(request: Request, job: Job, constraint: Constraint, found: Plan) -> Why:
    from zeroplan.why import Why, why

    tell(f"why not {constraint.name}")
    try:
        fixed = constraint.fixed(request.fixed)
        check_offload(fixed)
        choose_attention(fixed, request.model, [])
        check_operators(fixed, request.model, request.cluster.gpu)
    except ContradictionError as error:
        return Why(constraint.name, cannot=str(error))
    return why(job, request.fixed, constraint, found.chosen, reserve=request.reserve, objective=found.objective)
