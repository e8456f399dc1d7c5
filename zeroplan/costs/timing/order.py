"""What a pass issues and waits for, in DeepSpeed's order, and how far its work has come by then.

At stage 3 gathers run on a stream of their own, which waits for no work (partitioned_param_coordinator.py:
__all_gather_params_, fetch_sub_module); a module waits for its own. A full bucket is reduced when its gradients are
there, and NCCL runs what it is given in turn: later gathers too wait for it. At stages 1 and 2 work waits, when a
bucket is full, for the one before (stage_1_and_2.py:average_tensor). All of DeepSpeed 0.19.8, runtime/zero.

Two clocks run through a pass's events: the work's, and the network's, which does one thing after the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, zip_longest
from operator import attrgetter, itemgetter
from typing import NamedTuple

from zeroplan.costs.cache import by_execution, cached, no_key, strategy_key
from zeroplan.costs.deepspeed.events import Gather
from zeroplan.costs.deepspeed.fetch import by_replay, distinct, gathers_key, micro_steps
from zeroplan.costs.deepspeed.module_hooks import backward_hooks, cached_per_execution
from zeroplan.costs.deepspeed.stage_3_reductions import cached_per_reductions, reductions, reductions_key
from zeroplan.costs.deepspeed.traffic import reduced
from zeroplan.costs.timing.work import multiplied_with
from zeroplan.specs.execution import ModuleHook
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def stall_seconds(events: Sequence[StreamEvent], work: float, gathers: float, reductions: float) -> float:
    """Seconds that a pass of this much work waits for its traffic, as if neither slowed the other down.

    `gathers`, `reductions`: seconds of all of the pass's, each call's by its size.
    """
    waited = network = 0.0
    gathered: list[float] = []
    reduced: list[float] = []
    for kind, done, size, number in events:
        if kind == GATHER:
            network += size * gathers
            gathered.append(network)
        elif kind == FOR_GATHER:
            if (stall := gathered[number] - done * work - waited) > 0:
                waited += stall
        elif kind == FOR_REDUCTION:
            if (stall := reduced[number] - done * work - waited) > 0:
                waited += stall
        else:
            if (now := done * work + waited) > network:
                network = now
            network += size * reductions
            reduced.append(network)
    return waited + max(0.0, network - work - waited)


GATHER, REDUCE = "gather", "reduce"
FOR_GATHER, FOR_REDUCTION = "wait for a gather", "wait for a reduction"


StreamEvent = tuple[str, float, float, int]
"""Its kind, the share of the pass's work that was issued before, the share of all that the pass gathers or reduces, and
its number among its kind, from 0; of a wait the one that is waited for."""


class EventOrder(NamedTuple):
    """Events of one micro-step."""

    forward: tuple[StreamEvent, ...] = ()
    backward: tuple[StreamEvent, ...] = ()


def _order_key(strategy: Strategy) -> Hashable:
    if strategy.stage == 3:
        return gathers_key(strategy), reductions_key(strategy)
    return strategy_key(strategy)


def order(job: Job, *, first: bool = False) -> EventOrder:
    """The order of events in a job that overlaps; the engine's own reductions, at stage 0, come when backward is over.

    `first`: of the step's first micro-step, which makes secondary partitions (hpZ); else of any other.
    """
    return _orders(job)[0 if first else -1]


@cached(_order_key, order=by_execution)
def _orders(job: Job) -> list[EventOrder]:
    """Orders of the step's first micro-step, and of the others where they differ."""
    if job.strategy.stage < 3:
        return [EventOrder((), tuple(_reductions(job)))]
    flushes = _flushes(job)
    return [
        EventOrder(forward, tuple([event for _place, event in sorted([*placed, *flushes], key=itemgetter(0))]))
        for forward, placed in _gathers(job)
    ]


def done_before(job: Job) -> tuple[list[float], list[float]]:
    """`progress` of forward and of backward."""
    return done_in_forward(job), done_in_backward(job)


@cached_per_execution
def done_in_forward(job: Job) -> list[float]:
    """`progress` of it."""
    return progress(job, job.execution.forward)


@cached_per_execution
def done_in_backward(job: Job) -> list[float]:
    """`progress` of it."""
    return progress(job, backward_hooks(job))


def progress(job: Job, hooks: Sequence[ModuleHook]) -> list[float]:
    """Share of the pass's work before each hook, and 1 at the end.

    A module's work is what tokens are multiplied with there, twice in backward; of a tied table, the head's, which no
    layer has.
    """
    elements, heads = multiplied_with(job.model)
    result: list[float] = []
    using: dict[int, list[tuple[int, bool]]] = {}
    """The hooks that read each head, and whether they are backward's."""
    for at, (enters, _module, tensors, backward) in enumerate(hooks):
        reads = tensors if enters else ()
        result.append((1 + backward) * sum([elements[index] for index in reads if index not in heads]))
        for index in heads.intersection(reads):
            using.setdefault(index, []).append((at, backward))
    for index, places in using.items():
        at, backward = places[0 if hooks[0].backward else -1]
        result[at] += (1 + backward) * elements[index]
    total = sum(result)
    return [each / total for each in accumulate(result, initial=0.0)] if total else [1.0] * (len(result) + 1)


Placed = tuple[tuple[int, int], StreamEvent]
"""An event before a hook: the hook's number, then reductions before gathers before waits."""


@cached(no_key, order=by_replay)
def _gathers(job: Job) -> list[tuple[tuple[StreamEvent, ...], list[Placed]]]:
    """What each hook and the look ahead gather, and what it waits for, in forward and in backward: of each micro-step
    that differs.
    """
    result = []
    for step in distinct(micro_steps(job)):
        forward, backward = (
            list(_gathered(reads, done, [gather for gather in step.calls if gather.pass_index == pass_index]))
            for pass_index, (reads, done) in enumerate(zip(read_at(job), done_before(job), strict=True))
        )
        result.append((tuple([event for _place, event in forward]), backward))
    return result


@cached_per_execution
def read_at(job: Job) -> list[dict[int, tuple[int, ...]]]:
    """The tensors of each hook that enters a module with some, in forward and in backward."""
    return [
        {at: hook.tensors for at, hook in enumerate(hooks) if hook.enters and hook.tensors}
        for hooks in (job.execution.forward, backward_hooks(job))
    ]


def _gathered(
    reads: Mapping[int, tuple[int, ...]], done: Sequence[float], gathers: Sequence[Gather]
) -> Iterator[Placed]:
    total, number = sum([each.elements for each in gathers]), 0
    flying: dict[int, int] = {}
    """The gather that brings each tensor."""
    issued = {at: list(found) for at, found in groupby(gathers, attrgetter("at"))}
    for at in sorted({*reads, *issued}):
        if at in issued:
            for gather in issued[at]:
                yield (at, 1), (GATHER, done[at], gather.elements / total, number)
                for index in gather.tensors:
                    flying[index] = number
                number += 1
        if at in reads:
            waits = [flying.pop(index) for index in reads[at] if index in flying]
            if waits:
                yield (at, 2), (FOR_GATHER, done[at], 0.0, max(waits))


@cached_per_execution
def _reading(job: Job) -> list[int]:
    """Backward's hooks that read something: others have no work."""
    return [at for at, hook in enumerate(backward_hooks(job)) if hook.tensors]


@cached_per_reductions
def _flushes(job: Job) -> list[Placed]:
    """Buckets that are full before a hook."""
    flushes, reading, done = reductions(job).flushes, _reading(job), done_in_backward(job)
    total = sum(each.elements for each in flushes)
    full: dict[int, int] = {}
    for flush in flushes:
        following = bisect_left(reading, flush.at)
        at = reading[following] if following < len(reading) else len(done) - 1
        full[at] = full.get(at, 0) + flush.elements
    return [
        ((at, 0), (REDUCE, done[at], elements / total, number))
        for number, (at, elements) in enumerate(sorted(full.items()))
    ]


@cached_per_execution
def _ready(job: Job) -> dict[int, float]:
    """How far backward's work has come when a tensor's gradient is there; of a tied one the last."""
    done = done_in_backward(job)
    return {
        index: done[at] for at, (enters, _module, tensors, in_backward) in enumerate(backward_hooks(job), 1)
        if enters and in_backward for index in tensors
    }  # fmt: skip


def _reductions(job: Job) -> Iterator[StreamEvent]:
    """A bucket is full when the next gradient does not fit; the last one is reduced when backward is over."""
    found, ready = reduced(job), _ready(job)
    filled, arrived = sum(bucket.elements for _dtype, bucket in found), 0.0
    full = []
    for (dtype, bucket), following in zip_longest(found, found[1:]):
        last = following is None or following[0] != dtype
        full.append((1.0 if last else ready.get(following[1].tensors[0], 1.0), bucket.elements / filled))
    for number, (share, size) in enumerate(sorted(full)):
        arrived = max(arrived, share)
        yield REDUCE, arrived, size, number
        if number:
            yield FOR_REDUCTION, arrived, 0.0, number - 1
