"""A plan by its objective, on the GPUs that are named or the fewest, of one card or several; or a front of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zeroplan.errors import ContradictionError
from zeroplan.request.goal import NOTHING, Goal
from zeroplan.request.options import Options
from zeroplan.request.several import cards_named
from zeroplan.request.values import AUTO
from zeroplan.results.planning import planned
from zeroplan.results.recommend import Recommendation
from zeroplan.specs.objective import FASTEST, FEWEST_GPUS, LEAST_MEMORY, PARETO
from zeroplan.specs.target import USUAL, Script

if TYPE_CHECKING:
    from zeroplan.sizing import Fewest
    from zeroplan.why import Constraint


def recommendation(
    stated: Mapping[str, Any], *, script: Script = USUAL, alternatives: Sequence[str] = (), goal: Goal = NOTHING
) -> Recommendation:  # fmt: skip
    """One plan, or one for each card where the options name several. `alternatives`: names as behind --why."""
    constraints = _constraints(alternatives)
    if goal.objective == FEWEST_GPUS:
        from zeroplan.results.fewest import as_few_as_are_enough

        stated, goal = as_few_as_are_enough(stated), replace(goal, objective=FASTEST)
    several, counts = cards_named(stated), stated.get("gpus") == AUTO
    if stated.get("config") == "-" and (several or counts):
        raise ContradictionError("--config - can be read once, and each card or number of GPUs reads it; name a file")
    _check_objective(goal, several=bool(several), counts=counts, alternatives=bool(alternatives))
    if several:
        from zeroplan.results.cards import plan_of_each_card

        return plan_of_each_card(stated, several, goal, script)
    options = Options(script, **stated)
    if counts and goal.cheapest:
        from zeroplan.results.cards import cheapest_number

        return cheapest_number(options, goal)
    enough = None
    if counts:
        from zeroplan.results.fewest import counted, fewest_gpus

        enough = fewest_gpus(options, goal)
        options = counted(options, enough)
    rescue = enough is None or enough.gpus is not None
    if goal.objective == PARETO and rescue:
        from zeroplan.results.front import front

        plans = front(options, goal, enough)
        if plans:
            return plans
    plan = planned(options, rescue=rescue, fewest=enough, constraints=constraints, goal=goal)
    if enough is None and plan.run and not plan.run.in_time:
        plan.in_time = _in_time(options, goal)
    return plan


def _constraints(alternatives: Sequence[str]) -> list[Constraint]:
    if not alternatives:
        return []
    from zeroplan.request.alternatives import read_constraints

    return read_constraints(alternatives)


def _check_objective(goal: Goal, *, several: bool, counts: bool, alternatives: bool) -> None:
    if several and goal.objective in (LEAST_MEMORY, PARETO):
        raise ContradictionError(f"--objective {goal.objective}: found several cards, expected one; write one of them")
    if alternatives and goal.objective == PARETO:
        raise ContradictionError("--why asks about one plan and --objective pareto makes several; leave one out")
    if alternatives and (several or (counts and goal.cheapest)):
        raise ContradictionError("--why asks about one plan; write one card, and one number with --objective cheapest")


def _in_time(options: Options, goal: Goal) -> Fewest | None:
    """The fewest GPUs that make the deadline; None where their number follows from something else."""
    from zeroplan.results.fewest import fewest_gpus

    if options.hostfile is not None or options.config == "-":
        return None
    try:
        return fewest_gpus(options, goal)
    except ContradictionError:
        return None
