"""What a pass issues and waits for, in DeepSpeed's order, and how far its work has come by then.

At stage 3 gathers run on a stream of their own, which waits for no work (partitioned_param_coordinator.py:
__all_gather_params_, fetch_sub_module); a module waits for its own. A full bucket is reduced when its gradients are
there, and NCCL runs what it is given in turn: later gathers too wait for it. At stages 1 and 2 work waits, when a
bucket is full, for the one before (stage_1_and_2.py:average_tensor). All of DeepSpeed 0.19.8, runtime/zero.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate, zip_longest
from typing import NamedTuple

from zeroplan.costs.deepspeed.backward import decides_reductions, reductions
from zeroplan.costs.deepspeed.events import Flush, Gather
from zeroplan.costs.deepspeed.fetch import backward_visits, decides_gathers, decides_visits, micro_steps
from zeroplan.costs.deepspeed.once import once, whole
from zeroplan.costs.deepspeed.traffic import reduced
from zeroplan.costs.timing.work import multiplied_with
from zeroplan.specs.job import Job
from zeroplan.specs.model import Visit
from zeroplan.specs.strategy import Strategy

GATHER, REDUCE, WAIT = "gather", "reduce", "wait"


class Event(NamedTuple):
    kind: str
    done: float
    """Share of the pass's work that was issued before."""
    size: float
    """Of all that the pass gathers, or reduces."""
    number: int
    """Of the collective, counted from 0; of a wait the one that is waited for."""


class Order(NamedTuple):
    """Of one micro-step."""

    forward: tuple[Event, ...] = ()
    backward: tuple[Event, ...] = ()


def _decides(strategy: Strategy) -> Hashable:
    if strategy.stage == 3:
        return decides_gathers(strategy), decides_reductions(strategy)
    return whole(strategy)


@once(_decides)
def order(job: Job) -> Order:
    """Of a job that overlaps; the engine's own reductions, at stage 0, come when backward is over."""
    if job.strategy.stage < 3:
        return Order((), tuple(_reductions(job)))
    gathers = micro_steps(job).later.gathers
    passes = []
    for again, (visits, done) in enumerate(zip((job.execution.forward, backward_visits(job)), _done(job), strict=True)):
        flushes = reductions(job).flushes if again else ()
        passes.append(tuple(_stage_3(visits, done, [each for each in gathers if each.again == again], flushes)))
    return Order(*passes)


@once(decides_visits)
def _done(job: Job) -> tuple[list[float], list[float]]:
    """`progress` of forward and of backward."""
    return progress(job, job.execution.forward), progress(job, backward_visits(job))


def progress(job: Job, visits: Sequence[Visit]) -> list[float]:
    """Share of the pass's work before each visit, and 1 at the end.

    A module's work is what tokens are multiplied with there, twice in backward; of a tied table, the head's.
    """
    elements, heads = multiplied_with(job.model)
    found = [
        (1 + backward) * sum([elements[index] for index in tensors if index not in heads])
        if enters and tensors else 0.0
        for enters, _module, tensors, backward in visits
    ]  # fmt: skip
    for index in heads:
        using = [at for at, visit in enumerate(visits) if visit.enters and index in visit.tensors]
        if using:
            at = using[0 if visits[0].backward else -1]
            found[at] += (1 + visits[at].backward) * elements[index]
    total = sum(found)
    return [each / total for each in accumulate(found, initial=0.0)] if total else [1.0] * (len(found) + 1)


def _stage_3(
    visits: Sequence[Visit], done: Sequence[float], gathers: Sequence[Gather], flushes: Sequence[Flush]
) -> Iterator[Event]:
    """Buckets that are full before a visit, what it and the look ahead gather, and what it waits for."""
    number = 0
    gathered, filled = sum(each.elements for each in gathers), sum(each.elements for each in flushes)
    issued: dict[int, list[Gather]] = {}
    for gather in gathers:
        issued.setdefault(gather.at, []).append(gather)
    reading = [at for at, visit in enumerate(visits) if visit.tensors]
    full: dict[int, int] = {}
    for flush in flushes:  # before a visit that reads something: others have no work
        next_one = bisect_left(reading, flush.at)
        at = reading[next_one] if next_one < len(reading) else len(visits)
        full[at] = full.get(at, 0) + flush.elements
    flying: dict[int, int] = {}
    """Of each tensor the gather that brings it."""
    for at, (enters, _module, tensors, _backward) in enumerate(visits):
        if at in full:
            yield Event(REDUCE, done[at], full[at] / filled, number)
            number += 1
        if at in issued:
            for gather in issued[at]:
                yield Event(GATHER, done[at], gather.elements / gathered, number)
                flying.update(dict.fromkeys(gather.tensors, number))
                number += 1
        if enters and tensors:
            waits = [flying.pop(index) for index in tensors if index in flying]
            if waits:
                yield Event(WAIT, done[at], 0.0, max(waits))
    if len(visits) in full:
        yield Event(REDUCE, 1.0, full[len(visits)] / filled, number)


@once(decides_visits)
def _ready(job: Job) -> dict[int, float]:
    """How far backward's work has come when a tensor's gradient is there; of a tied one the last."""
    found: dict[int, float] = {}
    _forward, done = _done(job)
    for at, visit in enumerate(backward_visits(job)):
        if visit.enters and visit.backward:
            found.update(dict.fromkeys(visit.tensors, done[at + 1]))
    return found


def _reductions(job: Job) -> Iterator[Event]:
    """A bucket is full when the next gradient does not fit; the last one is reduced when backward is over."""
    found, ready = reduced(job), _ready(job)
    filled, arrived = sum(bucket.elements for _dtype, bucket in found), 0.0
    full = []
    for (dtype, bucket), following in zip_longest(found, found[1:]):
        last = following is None or following[0] != dtype
        full.append((1.0 if last else ready.get(following[1].tensors[0], 1.0), bucket.elements / filled))
    for number, (share, size) in enumerate(sorted(full)):
        arrived = max(arrived, share)
        yield Event(REDUCE, arrived, size, number)
        if number:
            yield Event(WAIT, arrived, 0.0, number - 1)
