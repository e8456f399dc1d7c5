"""What of the traffic shows: beside forward and backward where DeepSpeed overlaps, else all of it.

Where in a step each of the ledger's collectives runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zeroplan.clock import COMMUNICATION, Term, term
from zeroplan.costs.deepspeed.traffic import (
    BACKWARD,
    FORWARD,
    MICRO_STEP,
    gathered_for_modules,
    gathered_in_passes,
)
from zeroplan.costs.timing.computing import Computing
from zeroplan.costs.timing.network import call
from zeroplan.costs.timing.order import EventOrder, StreamEvent, order, stall_seconds
from zeroplan.costs.timing.rates import rates
from zeroplan.formulas import timing, volume
from zeroplan.ledger import Ledger, Transfer
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.software import Software

UPDATE = "after the step"
EVERY, FIRST, LATER, LAST = "every micro-step", "the first", "each later one", "the last"


class PhaseTransfer(NamedTuple):
    """All calls of one kind in one phase: of every micro-step, or of some alone."""

    phase: str
    transfer: Transfer
    micro_steps: str = EVERY
    gathers: bool = False
    """For modules, at stage 3."""


def phases(job: Job, traffic: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
    """Gathers of stage 3 run in the pass that issues them, reductions in backward, the rest after the step.

    Those of stage 1 come in the last micro-step's backward. What says its pass, as another engine's may, runs there.
    """
    gathers = gathered_for_modules(job) if job.strategy.stage == 3 and job.ranks > 1 else []
    for entry in traffic:
        if entry.when in (FORWARD, BACKWARD):
            yield PhaseTransfer(entry.when, entry)
        elif entry in gathers:
            if entry == gathers[0]:
                yield from _gathered(job)
        elif entry.when == MICRO_STEP:
            yield PhaseTransfer(BACKWARD, entry)
        elif _in_last_backward(job, entry):
            yield PhaseTransfer(BACKWARD, entry, LAST)
        else:
            yield PhaseTransfer(UPDATE, entry)


def grouped_micro_steps(job: Job, sent: Sequence[PhaseTransfer]) -> Iterator[tuple[str, list[PhaseTransfer], int]]:
    """Group what one phase sends: micro-steps that send the same, what that is, and how many they are."""
    left, every = job.strategy.micro_steps, [entry for entry in sent if entry.micro_steps == EVERY]
    for name, times in ((FIRST, 1), (LATER, left - 1), (LAST, 1)):
        if alone := [entry for entry in sent if entry.micro_steps == name]:
            yield name, every + alone, times
            left -= times
    if left:
        yield EVERY, every, left


def _gathered(job: Job) -> Iterator[PhaseTransfer]:
    found = gathered_in_passes(job)
    for name, transfers in zip((FIRST, LATER) if len(found) > 1 else (EVERY,), found, strict=True):
        for transfer in transfers:
            yield PhaseTransfer(transfer.when, transfer, name, gathers=True)


def _in_last_backward(job: Job, entry: Transfer) -> bool:
    """Stage 1's buckets; what the engine reduces by itself, at stage 0 and for BF16_Optimizer, comes after it."""
    by_engine = not job.strategy.stage or job.strategy.runs_bf16_optimizer
    return "reduce" in entry.collective and entry.rule is volume.replayed and not by_engine


MEMORY_PER_BYTE = 3.5
"""Bytes of a card's memory that a collective reads and writes for one byte on the wire, which compute has not."""


class Communication(NamedTuple):
    """Seconds of a step that each collective adds, by where it runs."""

    forward: list[Term]
    backward: list[Term]
    after: list[Term]


class ConcurrentTraffic(NamedTuple):
    """What identical micro-steps send in one pass, concurrent with so much work of each."""

    phase: str
    sent: list[PhaseTransfer]
    times: int
    """How many of a step's micro-steps they are."""
    work: float
    events: Sequence[StreamEvent]
    """The order in which all is issued; none where that is not known."""


def concurrent_traffic(
    job: Job, sent: Sequence[PhaseTransfer], found: Computing, software: Software
) -> Iterator[ConcurrentTraffic]:
    """Forwards, then backwards."""
    in_order = job.strategy.stage and job.strategy.overlaps and sent and software.in_order
    for phase, work in ((FORWARD, found.forward.seconds), (BACKWARD, found.backward.seconds)):
        for name, here, times in grouped_micro_steps(job, [entry for entry in sent if entry.phase == phase]):
            events = order(job, first=name == FIRST) if in_order else EventOrder()
            yield ConcurrentTraffic(phase, here, times, work, events.forward if phase == FORWARD else events.backward)


def exposed_share_of(job: Job, software: Software) -> SourcedValue | None:
    """The share of overlapped communication that is exposed; None where nothing is overlapped."""
    if not (job.strategy.overlaps and job.strategy.stage):
        return None
    return software.exposed_share_at_stage_3 if job.strategy.stage == 3 else software.exposed_share


def communication(job: Job, ledger: Ledger, found: Computing, software: Software) -> Communication:
    """Beside a step's forwards, beside its backwards, and after both."""
    sent, exposed_share = list(phases(job, ledger.traffic)), exposed_share_of(job, software)
    terms: dict[str, list[Term]] = {FORWARD: [], BACKWARD: []}
    for phase, here, times, work, events in concurrent_traffic(job, sent, found, software):
        terms[phase] += exposed(job, here, work, exposed_share, times, events)
    after = exposed(job, [entry for entry in sent if entry.phase == UPDATE], 0.0, None, 1)
    return Communication(_joined(terms[FORWARD]), _joined(terms[BACKWARD]), _joined(after))


def busy(job: Job, ledger: Ledger, phase: str) -> float:
    """Seconds of a step that the collectives of a phase take, whether they show or not."""
    here = [entry for entry in phases(job, ledger.traffic) if entry.phase == phase]
    return sum(
        times * entry.transfer.calls * call(job.cluster, entry.transfer).seconds
        for _name, alike_ones, times in grouped_micro_steps(job, here)
        for entry in alike_ones
    )


def exposed(
    job: Job, sent: list[PhaseTransfer], work: float, exposed_share: SourcedValue | None, times: int,
    events: Sequence[StreamEvent] = (),
) -> list[Term]:  # fmt: skip
    """The exposed time of all collectives beside this much work, shared out by their seconds; None: nothing is hidden.

    `events`: the order in which they are issued; without one they are spread evenly, but for one call of each alone.
    """
    calls = [(entry, call(job.cluster, entry.transfer)) for entry in sent]
    traffic = sum(entry.transfer.calls * one.seconds for entry, one in calls)
    if not traffic or not times:
        return []
    visible = traffic
    if exposed_share:
        memory = rates(job).memory
        wire = sum(entry.transfer.calls * one.symbols["wire"] for entry, one in calls)
        slowed = timing.streamed(MEMORY_PER_BYTE * wire, memory.value)
        if events:
            gathers = sum(entry.transfer.calls * one.seconds for entry, one in calls if entry.gathers)
            stall = stall_seconds(events, work + slowed, gathers, traffic - gathers)
        else:
            alone = sum(min(1.0, entry.transfer.calls) * one.seconds for entry, one in calls)
            stall = timing.evenly(work + slowed, traffic, alone)
        concurrent = timing.added(stall, work + slowed, traffic, exposed_share.value) + slowed
        visible = min(traffic, concurrent)  # never more than one after the other
    return [
        term(
            COMMUNICATION, f"{entry.transfer.collective}, {entry.phase}", timing.piped, *one.figures,
            *([exposed_share] if exposed_share else []),
            times=times * entry.transfer.calls * visible / traffic, **one.symbols,
        )
        for entry, one in calls
    ]  # fmt: skip


def _joined(terms: list[Term]) -> list[Term]:
    """Terms of one name and size of call as one."""
    result: dict[tuple[str, float], Term] = {}
    for entry in terms:
        key = (entry.name, entry.symbols["wire"])
        before = result.get(key, entry._replace(seconds=0.0, times=0.0))
        result[key] = before._replace(seconds=before.seconds + entry.seconds, times=before.times + entry.times)
    return list(result.values())
