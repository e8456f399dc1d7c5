"""What of the traffic shows: beside forward and backward where the engine overlaps, else all of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zeroplan.clock import COMMUNICATION, Term, term
from zeroplan.costs.engine import (
    BACKWARD,
    EVERY,
    FIRST,
    FORWARD,
    LAST,
    LATER,
    UPDATE,
    IssuedEvent,
    IssueOrder,
    PhaseTransfer,
)
from zeroplan.costs.engines import engine_of
from zeroplan.costs.timing.computing import Computing
from zeroplan.costs.timing.network import call
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.stalls import backward_progress, forward_progress, stall_seconds
from zeroplan.formulas import timing
from zeroplan.ledger import Ledger, Transfer
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.software import Software


def phases(job: Job, transfers: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
    """Where each runs: one that names its phase there, the others where the engine says."""
    yield from (PhaseTransfer(entry.when, entry) for entry in transfers if entry.when in (FORWARD, BACKWARD))
    yield from engine_of(job).in_phases(
        job, [entry for entry in transfers if entry.when not in (FORWARD, BACKWARD)]
    )  # fmt: skip


def grouped_micro_steps(job: Job, sent: Sequence[PhaseTransfer]) -> Iterator[tuple[str, list[PhaseTransfer], int]]:
    """Group what one phase sends: micro-steps that send the same, what that is, and how many they are."""
    left, every = job.strategy.micro_steps, [entry for entry in sent if entry.micro_steps == EVERY]
    for name, times in ((FIRST, 1), (LATER, left - 1), (LAST, 1)):
        if alone := [entry for entry in sent if entry.micro_steps == name]:
            yield name, every + alone, times
            left -= times
    if left:
        yield EVERY, every, left


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
    events: Sequence[IssuedEvent]
    """The order in which all is issued; none where that is not known."""
    done: Sequence[float]
    """The share of the work before each module hook of the pass."""


def concurrent_traffic(
    job: Job, sent: Sequence[PhaseTransfer], computed: Computing, software: Software
) -> Iterator[ConcurrentTraffic]:
    """Forwards, then backwards."""
    engine = engine_of(job)
    in_order = sent and software.in_order and engine.exposed_share(job, software)
    passes = (
        (FORWARD, computed.forward.seconds, forward_progress), (BACKWARD, computed.backward.seconds, backward_progress)
    )  # fmt: skip
    for phase, work, progress in passes:
        for name, here, times in grouped_micro_steps(job, [entry for entry in sent if entry.phase == phase]):
            order = engine.issue_order(job, first=name == FIRST) if in_order else IssueOrder()
            events = order.forward if phase == FORWARD else order.backward
            yield ConcurrentTraffic(phase, here, times, work, events, progress(job) if events else ())


def communication(job: Job, ledger: Ledger, computed: Computing, software: Software) -> Communication:
    """Beside a step's forwards, beside its backwards, and after both."""
    engine = engine_of(job)
    sent, exposed_share = list(phases(job, ledger.traffic)), engine.exposed_share(job, software)
    terms: dict[str, list[Term]] = {FORWARD: [], BACKWARD: []}
    for concurrent in concurrent_traffic(job, sent, computed, software):
        terms[concurrent.phase] += exposed(job, concurrent, exposed_share)
    after = ConcurrentTraffic(UPDATE, [entry for entry in sent if entry.phase == UPDATE], 1, 0.0, (), ())
    return Communication(_joined(terms[FORWARD]), _joined(terms[BACKWARD]), _joined(exposed(job, after, None)))


def busy(job: Job, ledger: Ledger, phase: str) -> float:
    """Seconds of a step that the collectives of a phase take, whether they show or not."""
    here = [entry for entry in phases(job, ledger.traffic) if entry.phase == phase]
    return sum(
        times * entry.transfer.calls * call(job.cluster, entry.transfer).seconds
        for _name, same, times in grouped_micro_steps(job, here)
        for entry in same
    )


def exposed(job: Job, concurrent: ConcurrentTraffic, exposed_share: SourcedValue | None) -> list[Term]:
    """The exposed time of all these collectives, shared out by their seconds; no `exposed_share`: nothing is hidden.

    Without the order in which they are issued they are spread evenly, but for one call of each alone.
    """
    _phase, sent, times, work, events, done = concurrent
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
            stall = stall_seconds(events, done, work + slowed, gathers, traffic - gathers)
        else:
            alone = sum(min(1.0, entry.transfer.calls) * one.seconds for entry, one in calls)
            stall = timing.evenly(work + slowed, traffic, alone)
        added = timing.added(stall, work + slowed, traffic, exposed_share.value) + slowed
        visible = min(traffic, added)  # never more than one after the other
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
