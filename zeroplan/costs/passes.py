"""Forward and backward as one timeline: what the model's operators have alive beside what DeepSpeed has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zeroplan.costs.allocations import END, START, MemorySnapshot
from zeroplan.formulas import activations as forms
from zeroplan.ledger import Activations, Detail, Line, line
from zeroplan.specs.execution import PassTimeline, Timeline
from zeroplan.specs.job import Job
from zeroplan.specs.model import TimelineRequest


def timeline_of(job: Job) -> Timeline | None:
    """The model's own timeline under this job; None where it is not written out: closed forms serve then."""
    return job.model.profile.timeline(timeline_request(job), job.leaves)


def interval_of(key: int, activations: PassTimeline, at: int) -> int:
    """The interval at whose end an event of the engine falls; `at`: the one that was reached, where nothing tells."""
    if key == END:
        return len(activations.most) - 1
    if key == START:
        return at
    return activations.ready.get(~key, at) if key < 0 else activations.hooks[key]


def alone(job: Job) -> Activations | None:
    """The model's own bytes without DeepSpeed, whose stage 3 runs another linear function."""
    result = job.model.profile.alone(timeline_request(job)._replace(zero_linear=False), job.leaves)
    return Activations(*result) if result else None


def timeline_request(job: Job) -> TimelineRequest:
    """What decides the timeline."""
    strategy = job.strategy
    return TimelineRequest(
        batch=strategy.micro_batch, seq=job.workload.seq, width=strategy.element_bytes,
        half=strategy.dtype == "float16", attention=strategy.attention,
        kernel="cpu" if strategy.backend == "cpu" else "cuda", recomputing=strategy.recomputing,
        zero_linear=strategy.runs_zero_linear, kernels=strategy.kernels,
        autocast_bytes=2 if strategy.autocast else 0, frozen=job.model.frozen,
    )  # fmt: skip


class PassPeak(NamedTuple):
    """The moment of a pass at which most is alive."""

    bytes: int
    elements: tuple[int, ...]
    """DeepSpeed's, in the order of its kinds."""
    activations: int
    at: int
    """The interval of the pass."""


def pass_peak(snapshots: Sequence[MemorySnapshot], activations: PassTimeline) -> PassPeak:
    """The largest moment of passes: at an interval's most with what DeepSpeed has meanwhile, or at one of its
    events.
    """
    most, at = activations.fullest
    best = PassPeak(most, (), most, at)
    for one in passes(snapshots):
        at_most = most + max([snapshot.most for snapshot in one])
        if at_most > best.bytes and (found := _pass_peak(one, activations, at_most)).bytes > best.bytes:
            best = found
    return best


def passes(snapshots: Sequence[MemorySnapshot]) -> Iterator[Sequence[MemorySnapshot]]:
    """Each from its start to the next one's."""
    starts = [at for at, snapshot in enumerate(snapshots) if snapshot.key == START]
    for start, end in zip(starts, [*starts[1:], len(snapshots)], strict=False):
        yield snapshots[start:end]


def _pass_peak(snapshots: Sequence[MemorySnapshot], activations: PassTimeline, at_most: int) -> PassPeak:
    """`at_most`: bytes that no moment is above, so that the first with as many is the largest."""
    most, now = activations.most, activations.now
    before, at = snapshots[0], -1
    best: tuple[tuple[int, ...], int, int] = (), 0, 0
    largest, there = 0, before.now
    for snapshot in snapshots:
        if (to := interval_of(snapshot.key, activations, at)) > at:
            interval = most[to] if to == at + 1 else max(most[at + 1 : to + 1])
            if interval + there > largest:
                largest = interval + there
                best = before.at_end, interval, most.index(interval, at + 1)
            at = to
        concurrent = now[at] if at >= 0 else activations.start
        before, (_key, here, _elements, there, _at_end) = snapshot, snapshot
        if here + concurrent > largest:
            largest = here + concurrent
            best = snapshot.at_most, concurrent, at
        if largest == at_most:
            break
    return PassPeak(largest, *best)


def at_work(job: Job, found: PassPeak, *, backward: bool, detail: Detail) -> tuple[str, list[Line]]:
    """The module at that moment, and what the model has by kind, the largest first; one line where nobody asks."""
    if not detail:
        return "activations", [line("activations", forms.at_work, size=found.activations)]
    module, kinds = job.model.profile.allocated(
        timeline_request(job),
        job.leaves,
        backward=backward,
        at=found.at,
        size=found.activations,
        named=detail == Detail.EQUATIONS,
    )
    largest_first = sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    lines = [
        line(name, getattr(forms, name.lower().replace(" ", "_")), size=int(size))._replace(equation=_equation(size))
        for name, size in largest_first
    ]
    return module or "loss", lines


def _equation(size: int) -> str:
    """The equation of a size that remembers how it came about."""
    if type(size) is int:
        return ""
    from zeroplan.autograd.equation import equation

    return equation(size)
