"""Rows of tables that are sums: what is added up, each part with the name under which it can be explained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.clock import GROUPS, StepTime, weakest
from zeroplan.fit import PLACES, beside_on_host
from zeroplan.ledger import Ledger, Line, Tier, is_activation, total
from zeroplan.levels import levels
from zeroplan.specs.job import Job

SUM, HELD, BESIDE, SENT, STEP = "sum", "held between steps", "gradients and buffers", "sent per GPU", "step"
HOST_AT_MOST = "host memory per node, up to"
OTHERS = {
    SUM: ("model states", "zero paper"), HELD: ("held",), BESIDE: ("gradients, buffers",),
    PLACES["host"]: ("host memory", "host"), HOST_AT_MOST: ("up to",), PLACES["nvme"]: ("nvme",),
    SENT: ("sent", "sent by each gpu a step"), STEP: ("step time",),
}  # fmt: skip
"""Names, and other words for them."""


class Sum(NamedTuple):
    name: str
    unit: str
    """GiB: bytes, as memory is shown; GB: bytes, as papers and traffic are; s: seconds."""
    meaning: str
    parts: tuple[tuple[str, float], ...]
    evidence: str
    said: str = ""
    """Where it is."""

    @property
    def value(self) -> float:
        return sum(value for _name, value in self.parts)


def named(wanted: str) -> str | None:
    """The sum that a word, in lower case, stands for."""
    return next((name for name, others in OTHERS.items() if wanted in (name.lower(), *others)), None)


def sums(job: Job, ledger: Ledger, paper: Ledger, time: StepTime | None) -> Iterator[Sum]:
    """Those that there are; `time`: None where no card is named."""
    tier, counted = ledger.gpu, levels(job, ledger)[0].evidence
    beside = (entry for entry in tier.beside(tier.peak) if not is_activation(entry))
    yield Sum(SUM, "GB", "model states of one GPU by the ZeRO paper", _bytes(paper.gpu.resident), "paper")
    meaning = "what a GPU has allocated from one optimizer step to the next"
    yield Sum(HELD, "GiB", meaning, _bytes(tier.resident), counted)
    meaning = "what a GPU has at its peak beside what it holds between steps and activations"
    yield Sum(BESIDE, "GiB", meaning, _bytes(beside), counted, _where(tier))
    for key, place in (("host", ledger.host), ("nvme", ledger.nvme)):
        if total(place.peak.lines):
            meaning = "what all ranks of a node need of it at their peak"
            yield Sum(PLACES[key], "GiB", meaning, _bytes(place.peak.lines), counted, _where(place))
    processes, *saving = beside_on_host(job)
    between = (*ledger.host.resident, *saving)
    at_peak = total(ledger.host.peak.lines) > total(between)
    meaning = "what a node's memory may hold at most, while the model is built or in a step" if at_peak else (
        "what a node's memory may hold at most, while the model is saved between steps"
    )
    parts = _bytes((*(ledger.host.peak.lines if at_peak else between), processes))
    yield Sum(HOST_AT_MOST, "GiB", meaning, parts, "published")
    sent = (
        (each.title, each.wire_bytes * times)
        for each in ledger.traffic
        if (times := each.times(job.strategy.micro_steps)) and each.wire_bytes
    )
    yield Sum(SENT, "GB", "what one rank sends in an optimizer step, all micro-steps together", tuple(sent), counted)
    if time:
        groups = tuple((group, time.of(group)) for group in GROUPS if time.of(group))
        evidence = weakest(entry.evidence for entry in time.terms)
        yield Sum(STEP, "s", "seconds of an optimizer step, all micro-steps together", groups, evidence)


def _where(tier: Tier) -> str:
    phase, place = tier.peak.phase.replace("_", " "), tier.peak.place
    return f"in {phase}" + (f", {place}" if place not in ("", phase) else "")


def _bytes(lines: Iterable[Line]) -> tuple[tuple[str, int], ...]:
    return tuple((entry.name, entry.bytes) for entry in lines if entry.bytes)
