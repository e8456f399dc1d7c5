"""Plans of a search as the dataclasses of `recommend --json`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from zeroplan.largest import Largest
from zeroplan.plan import Rejected, Suggestion, label
from zeroplan.report import json_objects
from zeroplan.schema import recommend as schema
from zeroplan.schema.json_object import copied
from zeroplan.search import Candidate, Front, SearchSummary
from zeroplan.sizing import Fewest, Lack
from zeroplan.training import TrainingRun
from zeroplan.why import LineDifference, Why


def searched(one: SearchSummary | Front) -> schema.Searched:
    """How much was looked at."""
    return copied(schema.Searched, one)


def rejected(one: Rejected) -> schema.RejectedObject:
    """A strategy beside the plan."""
    return schema.RejectedObject(**vars(entry(one.candidate)), change=one.change, reason=one.reason)


def training_run(run: TrainingRun) -> schema.TrainingRunObject:
    """A whole training run: seconds, GPU-hours, cost, and what is left of its deadline."""
    wanted = run.wanted
    whole = bool(wanted.tokens)
    return schema.TrainingRunObject(
        tokens=wanted.tokens,
        steps=run.steps if whole else None,
        seconds=run.seconds if whole else None,
        low=run.low if whole else None,
        high=run.high if whole else None,
        gpu_hours=run.gpu_hours if whole else None,
        deadline_seconds=wanted.deadline,
        late_seconds=run.late,
        in_time=run.in_time,
        price=wanted.price,
        cost=run.cost,
        cost_per_million_tokens=run.cost_per_million,
    )


def why(one: Why) -> schema.WhyObject:
    """An alternative that was asked after, and the lines that set it back."""
    return schema.WhyObject(
        what=one.constraint, is_plan=one.is_plan, reason=one.reason, lack=lack(one.lack),
        seconds_slower=one.slower, bytes_more=one.more, seconds=_differences(one.seconds), of=one.of,
        bytes=_differences(one.bytes), alternative=entry(one.candidate) if one.candidate else None,
    )  # fmt: skip


def _differences(rows: Sequence[LineDifference]) -> list[schema.DifferenceObject]:
    return [copied(schema.DifferenceObject, row) for row in rows]


def fewest(one: Fewest) -> schema.FewestObject:
    """The fewest GPUs, and what the next smaller number lacks."""
    return copied(schema.FewestObject, one, lack=lack(one.lack), late_seconds=one.late if one.late != inf else None)


def lack(one: Lack | None) -> schema.LackObject | None:
    """What is missing, in which tier, of the strategy that is nearest to fitting."""
    return schema.LackObject(tier=one.tier, bytes=one.bytes, name=label(one.candidate)) if one else None


def entry(candidate: Candidate) -> schema.PlanEntry:
    """A strategy of the search as `--json` has it."""
    whole = json_objects.strategy_estimate(candidate.job, candidate.ledger, candidate.fit, candidate.speed)
    return schema.PlanEntry(**vars(whole), name=label(candidate), step_seconds=candidate.time.total)


def largest_model(one: Largest) -> schema.LargestModel:
    """The largest model that fits, with its plan."""
    return schema.LargestModel(
        parameters=one.parameters, plan=entry(one.candidate), next_size=one.next_size, lack=lack(one.lack)
    )


def way_out(one: Suggestion) -> schema.WayOutObject:
    """A strategy that fits after a single change."""
    return schema.WayOutObject(**vars(entry(one.candidate)), change=one.change)
