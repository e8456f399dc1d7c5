"""What of the traffic shows: beside forward and backward where DeepSpeed overlaps, else all of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.clock import COMMUNICATION, Term, term
from zeroplan.costs.timing.computing import Computing
from zeroplan.costs.timing.network import call
from zeroplan.costs.timing.order import FOR_GATHER, GATHER, Event, Order, order
from zeroplan.costs.timing.phases import BACKWARD, FORWARD, UPDATE, Sent, phases
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.replay import waiting
from zeroplan.formulas import network, overlap, roofline
from zeroplan.ledger import Ledger
from zeroplan.specs.cluster import Figure
from zeroplan.specs.job import Job
from zeroplan.specs.software import Software

MEMORY_PER_BYTE = 3.5
"""Bytes of a card's memory that a collective reads and writes for one byte on the wire, which compute has not."""


class Communication(NamedTuple):
    """Seconds of a step that each collective adds, by where it runs."""

    forward: list[Term]
    backward: list[Term]
    after: list[Term]


def communication(job: Job, ledger: Ledger, found: Computing, software: Software) -> Communication:
    """Beside a step's forwards, beside its backwards, and after both."""
    strategy, sent = job.strategy, list(phases(job, ledger.traffic))
    share = software.shown_at_stage_3 if strategy.stage == 3 else software.shown
    shown = share if strategy.overlaps and strategy.stage else None
    in_order = order(job) if shown and sent and software.in_order else Order()
    beside: list[list[Term]] = []
    for phase, work, events in (
        (FORWARD, found.forward.seconds, in_order.forward), (BACKWARD, found.backward.seconds, in_order.backward),
    ):  # fmt: skip
        here = [entry for entry in sent if entry.phase == phase]
        every = [entry for entry in here if not entry.last]
        alike = strategy.micro_steps if every == here else strategy.micro_steps - 1
        terms = exposed(job, every, work, shown, alike, events)
        beside.append(_joined(terms + (exposed(job, here, work, shown, 1, events) if every != here else [])))
    after = exposed(job, [entry for entry in sent if entry.phase == UPDATE], 0.0, None, 1)
    return Communication(beside[0], beside[1], _joined(after))


class Gathers(NamedTuple):
    """Seconds of stage 3's gathers."""

    forward: float
    """That they add to a step's forwards, where nothing else runs; to its backwards, at least."""
    backward: float
    sent: float
    """Of one micro-step's backward, whether they show or not, none where its order has none; and what they take there
    of the card's memory.
    """
    slowed: float


def of_gathers(job: Job, ledger: Ledger, found: Computing, software: Software) -> Gathers:
    """As `communication` has them, without reductions."""
    shown = software.shown_at_stage_3 if job.strategy.overlaps else None
    in_order = order(job) if shown and software.in_order else Order()
    sent = [entry for entry in phases(job, ledger.traffic) if entry.gathers]
    forward, backward = ([entry for entry in sent if entry.phase == phase] for phase in (FORWARD, BACKWARD))
    alone = [event for event in in_order.backward if event.kind in ALONE]
    shown_forward, shown_backward = (
        sum(entry.seconds for entry in exposed(job, here, work, shown, job.strategy.micro_steps, events))
        for here, work, events in (
            (forward, found.forward.seconds, in_order.forward), (backward, found.backward.seconds, alone),
        )
    )  # fmt: skip
    calls = [(entry.calls, call(job.cluster, entry.transfer)) for entry in backward]
    wire = sum(count * one.symbols["wire"] for count, one in calls)
    slowed = roofline.streamed(MEMORY_PER_BYTE * wire, rates(job).memory.value)
    are_sent = not in_order.backward or any(event.kind == GATHER for event in alone)
    sent_there = are_sent * sum(count * one.seconds for count, one in calls)
    return Gathers(shown_forward, shown_backward, sent_there, slowed)


ALONE = (GATHER, FOR_GATHER)
"""Events of a pass in which nothing is reduced."""


def busy(job: Job, ledger: Ledger, phase: str) -> float:
    """Seconds of a step that the collectives of a phase take, whether they show or not."""
    return sum(
        (1 if entry.last else job.strategy.micro_steps) * entry.calls * call(job.cluster, entry.transfer).seconds
        for entry in phases(job, ledger.traffic)
        if entry.phase == phase
    )


def exposed(
    job: Job, sent: list[Sent], work: float, shown: Figure | None, times: int, events: Sequence[Event] = (),
) -> list[Term]:  # fmt: skip
    """Of all collectives beside this much work what shows, shared out by their seconds; None: nothing is hidden.

    `events`: the order in which they are issued; without one they are spread evenly, but for one call of each alone.
    """
    calls = [(entry, call(job.cluster, entry.transfer)) for entry in sent]
    traffic = sum(entry.calls * one.seconds for entry, one in calls)
    if not traffic or not times:
        return []
    visible = traffic
    if shown:
        memory = rates(job).memory
        wire = sum(entry.calls * one.symbols["wire"] for entry, one in calls)
        slowed = roofline.streamed(MEMORY_PER_BYTE * wire, memory.value)
        if events:
            gathers = sum(entry.calls * one.seconds for entry, one in calls if entry.gathers)
            waits = waiting(events, work + slowed, gathers, traffic - gathers)
        else:
            alone = sum(min(1.0, entry.calls) * one.seconds for entry, one in calls)
            waits = overlap.evenly(work + slowed, traffic, alone)
        beside = overlap.added(waits, work + slowed, traffic, shown.value) + slowed
        visible = min(traffic, beside)  # never more than one after the other
    return [
        term(
            COMMUNICATION, f"{entry.transfer.collective}, {entry.phase}", network.piped, *one.figures,
            *([shown] if shown else []), times=times * entry.calls * visible / traffic, **one.symbols,
        )
        for entry, one in calls
    ]  # fmt: skip


def _joined(terms: list[Term]) -> list[Term]:
    """Terms of one name and size of call as one."""
    found: dict[tuple[str, float], Term] = {}
    for entry in terms:
        key = (entry.name, entry.symbols["wire"])
        before = found.get(key, entry._replace(seconds=0.0, times=0.0))
        found[key] = before._replace(seconds=before.seconds + entry.seconds, times=before.times + entry.times)
    return list(found.values())
