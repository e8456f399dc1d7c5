"""Forward and backward as one timeline: what the model's operators have alive beside what DeepSpeed has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.costs.allocations import END, START, Snapshots
from zeroplan.formulas import activations as forms
from zeroplan.ledger import DTYPE_BYTES, Activations, Detail, Line, line
from zeroplan.specs.execution import PassTimeline, Timeline
from zeroplan.specs.job import Job
from zeroplan.specs.model import TimelineRequest


def timeline_of(job: Job) -> Timeline | None:
    """The model's own timeline under this job; None where it is not written out: closed forms serve then."""
    return job.model.profile.timeline(timeline_request(job), job.leaves)


def intervals_reached(keys: Sequence[int], activations: PassTimeline) -> list[int]:
    """The interval that a pass has ended by each of the engine's events; -1 before the first."""
    hooks, ready, at, result = activations.hooks, activations.ready, -1, []
    for key in keys:
        if key < 0:
            to = ready.get(~key, at)
        elif key < END:
            to = hooks[key]
        else:
            to = at if key == START else len(activations.most) - 1
        at = max(at, to)
        result.append(at)
    return result


def alone(job: Job) -> Activations | None:
    """The model's own bytes without DeepSpeed, whose stage 3 runs another linear function."""
    result = job.model.profile.alone(timeline_request(job)._replace(zero_linear=False), job.leaves)
    return Activations(*result) if result else None


def timeline_request(job: Job) -> TimelineRequest:
    """What decides the timeline."""
    strategy = job.strategy
    wide = job.model.low_rank if job.adapter_dtype != strategy.dtype else ()
    return TimelineRequest(
        batch=strategy.micro_batch, seq=job.workload.seq, width=strategy.element_bytes,
        half=strategy.dtype == "float16", attention=strategy.attention,
        kernel="cpu" if strategy.backend == "cpu" else "cuda", recomputing=strategy.recomputing,
        zero_linear=strategy.runs_zero_linear, kernels=strategy.kernels,
        autocast_bytes=2 if strategy.autocast else 0, frozen=job.model.frozen,
        wide=frozenset(wide), loaded=DTYPE_BYTES[strategy.built_dtype] if job.model.quantization else 0,
    )  # fmt: skip


class PassPeak(NamedTuple):
    """The moment of a pass at which most is alive."""

    bytes: int
    elements: tuple[int, ...]
    """DeepSpeed's, in the order of its kinds."""
    activations: int
    at: int
    """The interval of the pass; the first also for what is before it."""


def pass_peak(snapshots: Snapshots, activations: PassTimeline) -> PassPeak:
    """The largest moment of passes: at an interval's most with what DeepSpeed has meanwhile, or at one of its
    events.
    """
    most, at = activations.fullest
    best = PassPeak(most, (), most, at)
    for rows in snapshots.passes:
        at_most = most + max(snapshots.most[rows.start : rows.stop])
        if at_most > best.bytes and (here := _pass_peak(snapshots, rows, activations, at_most)).bytes > best.bytes:
            best = here
    return best


def _pass_peak(snapshots: Snapshots, rows: range, activations: PassTimeline, at_most: int) -> PassPeak:
    """`at_most`: bytes that no moment is above, so that the first with as many is the largest."""
    most, now, own = activations.most, activations.now, slice(rows.start, rows.stop)
    there, at, concurrent = snapshots.now[rows.start], -1, activations.start
    largest, row_of_largest, is_between, activations_there, interval_there = 0, rows.start, False, 0, 0
    reached = intervals_reached(snapshots.keys[own], activations)
    for row, to, here, after in zip(rows, reached, snapshots.most[own], snapshots.now[own], strict=True):
        if to > at:
            interval = most[to] if to == at + 1 else max(most[at + 1 : to + 1])
            if interval + there > largest:
                largest, row_of_largest, is_between = interval + there, max(row - 1, rows.start), True
                activations_there, interval_there = interval, most.index(interval, at + 1)
            at, concurrent = to, now[to]
        there = after
        if here + concurrent > largest:
            largest, row_of_largest, is_between = here + concurrent, row, False
            activations_there, interval_there = concurrent, at
        if largest == at_most:
            break
    elements = (snapshots.at_end if is_between else snapshots.at_most)[row_of_largest] if largest else ()
    return PassPeak(largest, elements, activations_there, max(interval_there, 0))


def at_work(job: Job, peak: PassPeak, *, backward: bool, detail: Detail) -> tuple[str, list[Line]]:
    """The module at that moment, and what the model has by kind, the largest first; one line where nobody asks."""
    if not detail:
        return "activations", [line("activations", forms.at_work, size=peak.activations)]
    module, kinds = job.model.profile.allocated(
        timeline_request(job),
        job.leaves,
        backward=backward,
        at=peak.at,
        size=peak.activations,
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
