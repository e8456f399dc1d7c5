"""The order in which a micro-step issues its collectives, and what its work waits for.

At stage 3 gathers run on a stream of their own, which waits for no work (partitioned_param_coordinator.py:
__all_gather_params_, fetch_sub_module); a module waits for its own. A full bucket is reduced when its gradients are
there, and NCCL runs what it is given in turn: later gathers too wait for it. At stages 1 and 2 work waits, when a
bucket is full, for the one before (stage_1_and_2.py:average_tensor). All of DeepSpeed 0.19.8, runtime/zero.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import attrgetter, itemgetter

from zeroplan.costs.cache import IdentityKey, by_execution, cached, cached_per_execution, no_key
from zeroplan.costs.deepspeed.events import Gather
from zeroplan.costs.deepspeed.fetch import by_gathers, distinct, micro_steps
from zeroplan.costs.deepspeed.reduction import cached_per_reductions, reductions, reductions_key
from zeroplan.costs.deepspeed.traffic import reduced
from zeroplan.costs.engine import FOR_GATHER, FOR_REDUCTION, GATHER, REDUCE, IssuedEvent, IssueOrder
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def _order_key(strategy: Strategy) -> Hashable:
    return reductions_key(strategy) if strategy.stage == 3 else strategy.recomputing.every > 0


def _by_calls(job: Job) -> Hashable:
    """Below stage 3 the buckets, which settle the rest."""
    return by_execution(job), by_gathers(job) if job.strategy.stage == 3 else IdentityKey(reduced(job))


@cached(_order_key, order=_by_calls)
def issue_orders(job: Job) -> list[IssueOrder]:
    """Orders of the step's first micro-step, which makes secondary partitions (hpZ), and of the others where they
    differ. The engine's own reductions, at stage 0, come when backward is over.
    """
    if job.strategy.stage < 3:
        return [IssueOrder((), tuple(_reductions(job)))]
    flushes = _flushes(job)
    return [
        IssueOrder(forward, tuple([event for _place, event in sorted([*placed, *flushes], key=itemgetter(0))]))
        for forward, placed in _gathers(job)
    ]


Placed = tuple[tuple[int, int], IssuedEvent]
"""An event before a hook: the hook's number, then reductions before gathers before waits."""


@cached(no_key, order=by_gathers)
def _gathers(job: Job) -> list[tuple[tuple[IssuedEvent, ...], list[Placed]]]:
    """What each hook and the look ahead gather, and what it waits for, in forward and in backward: of each micro-step
    that differs.
    """
    result = []
    for step in distinct(micro_steps(job)):
        forward, backward = (
            list(_gathered(reads, [gather for gather in step.calls if gather.pass_index == pass_index]))
            for pass_index, reads in enumerate(_read_at(job))
        )
        result.append((tuple([event for _place, event in forward]), backward))
    return result


@cached_per_execution
def _read_at(job: Job) -> list[dict[int, tuple[int, ...]]]:
    """The tensors of each hook that enters a module with some, in forward and in backward."""
    return [
        {at: hook.tensors for at, hook in enumerate(hooks) if hook.enters and hook.tensors}
        for hooks in (job.execution.forward, job.backward_hooks)
    ]


def _gathered(reads: Mapping[int, tuple[int, ...]], gathers: Sequence[Gather]) -> Iterator[Placed]:
    total, number = sum([each.elements for each in gathers]), 0
    flying: dict[int, int] = {}
    """The gather that brings each tensor."""
    issued = {at: list(calls) for at, calls in groupby(gathers, attrgetter("at"))}
    for at in sorted({*reads, *issued}):
        if at in issued:
            for gather in issued[at]:
                yield (at, 1), (GATHER, at, gather.elements / total, number)
                for index in gather.tensors:
                    flying[index] = number
                number += 1
        if at in reads:
            waits = [flying.pop(index) for index in reads[at] if index in flying]
            if waits:
                yield (at, 2), (FOR_GATHER, at, 0.0, max(waits))


@cached_per_execution
def _reading(job: Job) -> list[int]:
    """Backward's hooks that read something: others have no work."""
    return [at for at, hook in enumerate(job.backward_hooks) if hook.tensors]


@cached_per_reductions
def _flushes(job: Job) -> list[Placed]:
    """Buckets that are full before a hook."""
    flushes, reading, end = reductions(job).flushes, _reading(job), len(job.backward_hooks)
    total = sum(each.elements for each in flushes)
    full: dict[int, int] = {}
    for flush in flushes:
        following = bisect_left(reading, flush.at)
        at = reading[following] if following < len(reading) else end
        full[at] = full.get(at, 0) + flush.elements
    return [
        ((at, 0), (REDUCE, at, elements / total, number)) for number, (at, elements) in enumerate(sorted(full.items()))
    ]


@cached_per_execution
def _ready(job: Job) -> dict[int, int]:
    """The hook of backward behind which a tensor's gradient is there; of a tied one the last."""
    return {
        index: at for at, (enters, _module, tensors, in_backward) in enumerate(job.backward_hooks, 1)
        if enters and in_backward for index in tensors
    }  # fmt: skip


def _reductions(job: Job) -> Iterator[IssuedEvent]:
    """A bucket is full when the next gradient does not fit; the last one is reduced when backward is over."""
    filled, ready, end = reduced(job), _ready(job), len(job.backward_hooks)
    total, arrived = sum(bucket.elements for _dtype, bucket in filled), 0
    full = []
    for (dtype, bucket), following in zip_longest(filled, filled[1:]):
        last = following is None or following[0] != dtype
        full.append((end if last else ready.get(following[1].tensors[0], end), bucket.elements / total))
    for number, (at, size) in enumerate(sorted(full)):
        arrived = max(arrived, at)
        yield REDUCE, arrived, size, number
        if number:
            yield FOR_REDUCTION, arrived, 0.0, number - 1
