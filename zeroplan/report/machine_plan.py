"""Plans of a search as the dataclasses of `recommend --json`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from zeroplan.largest import Largest
from zeroplan.plan import Rejected, WayOut, label
from zeroplan.report import machine
from zeroplan.schema import recommend as schema
from zeroplan.schema.json_object import copied
from zeroplan.search import Candidate, Front, SearchSummary
from zeroplan.sizing import Fewest, Lack
from zeroplan.training import TrainingRun
from zeroplan.why import Row, Why


def searched(one: SearchSummary | Front) -> schema.Searched:
    """How much was looked at."""
    return copied(schema.Searched, one)


def rejected(one: Rejected) -> schema.Rejected:
    """A strategy beside the plan."""
    return schema.Rejected(**vars(entry(one.candidate)), change=one.change, reason=one.reason)


def training_run(run: TrainingRun) -> schema.TrainingRun:
    """A whole training run: seconds, GPU-hours, cost, and what is left of its deadline."""
    wanted = run.wanted
    whole = bool(wanted.tokens)
    return schema.TrainingRun(
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


def why(one: Why) -> schema.Why:
    """An alternative that was asked after, and the lines that set it back."""
    return schema.Why(
        what=one.constraint, is_plan=one.is_plan, reason=one.reason, lack=lack(one.lack),
        seconds_slower=one.slower, bytes_more=one.more, seconds=_differences(one.seconds), of=one.of,
        bytes=_differences(one.bytes), alternative=entry(one.candidate) if one.candidate else None,
    )  # fmt: skip


def _differences(rows: Sequence[Row]) -> list[schema.Difference]:
    return [copied(schema.Difference, row) for row in rows]


def fewest(one: Fewest) -> schema.Fewest:
    """The fewest GPUs, and what the next smaller number lacks."""
    return copied(schema.Fewest, one, lack=lack(one.lack), late_seconds=one.late if one.late != inf else None)


def lack(one: Lack | None) -> schema.Lack | None:
    """What is missing, in which tier, of the strategy that is nearest to fitting."""
    return schema.Lack(tier=one.tier, bytes=one.bytes, name=label(one.candidate)) if one else None


def entry(candidate: Candidate) -> schema.PlanEntry:
    """A strategy of the search as `--json` has it."""
    whole = machine.strategy_estimate(candidate.job, candidate.ledger, candidate.fit, candidate.speed)
    return schema.PlanEntry(**vars(whole), name=label(candidate), step_seconds=candidate.time.total)


def largest_model(one: Largest) -> schema.LargestModel:
    """The largest model that fits, with its plan."""
    return schema.LargestModel(
        parameters=one.parameters, plan=entry(one.candidate), next_size=one.next_size, lack=lack(one.lack)
    )


def way_out(one: WayOut) -> schema.WayOut:
    """A strategy that fits after a single change."""
    return schema.WayOut(**vars(entry(one.candidate)), change=one.change)
