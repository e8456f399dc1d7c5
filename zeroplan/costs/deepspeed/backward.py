"""Backward passes of stage 3, run: their largest moments, when which gradient reaches its bucket, what is reduced."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from zeroplan.costs.deepspeed.allocation_tracker import END
from zeroplan.costs.deepspeed.cache import cached, strategy_key
from zeroplan.costs.deepspeed.events import (
    EventLog,
    Flush,
    GatheredMemory,
    LayerOffset,
    MicroStep,
    RepeatedBlock,
    all_events,
)
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.layout import bucket_dtypes, communication_dtypes, groups_key, tensor_sizes
from zeroplan.costs.deepspeed.module_hooks import hook_order_key, pass_hooks
from zeroplan.costs.deepspeed.partitions import own_shares, padded_sizes
from zeroplan.costs.deepspeed.quantized_collectives import CollectiveCall, quantizes_gradients, reduced
from zeroplan.costs.deepspeed.reduction import Bucket, all_reduced, buckets
from zeroplan.costs.deepspeed.stage_3_backward import Stage3Backward
from zeroplan.specs.execution import ModuleHook
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


class Arrival(NamedTuple):
    """A gradient reaches its bucket."""

    tensor: int
    at: int
    """The hook of backward that comes next; END when none does."""

    def offset_by(self, by: LayerOffset) -> Arrival:
        """As `Repeatable`."""
        return Arrival(self.tensor + by.tensors, self.at + by.hooks)


class Reductions(NamedTuple):
    """What one backward reduces."""

    sent: tuple[CollectiveCall, ...]
    flushes: tuple[Flush, ...]


def _arrivals_key(strategy: Strategy) -> Hashable:
    """Gradients come in one order, however far parameters are gathered ahead, wherever they go."""
    return (
        hook_order_key(strategy), strategy.memory_efficient_linear, groups_key(strategy), strategy.autocast_dtype,
    )  # fmt: skip


def reductions_key(strategy: Strategy) -> Hashable:
    return (
        _arrivals_key(strategy), strategy.reduce_bucket_size, strategy.scatters or strategy.contiguous_gradients,
        strategy.scatters, strategy.communication, strategy.quantized_gradients,
    )  # fmt: skip


class ArrivalRecorder(Stage3Backward):
    """Nothing is reduced."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.arrived = self.log = EventLog[Arrival]()

    def repeat(self, since: int, times: int, by: LayerOffset) -> None:
        self.arrived.repeat(since, times, by)

    def _add(self, index: int) -> None:
        self.arrived.open.append(Arrival(index, self.hook))

    def _ready(self, index: int, *, waits: bool) -> None:
        if waits:
            self.apart.add(index)
        else:
            self._add(index)


@cached(_arrivals_key)
def arrivals(job: Job) -> tuple[Arrival, ...]:
    """Gradients in the order in which they reach their bucket, each when its module's backward is done."""
    result = ArrivalRecorder(job)
    result.run(nothing_gathered(job))
    return tuple(all_events(result.arrived.blocks()))


class ReadyRecorder(ArrivalRecorder):
    """Nothing is brought to a bucket either."""

    def _ready(self, index: int, *, waits: bool) -> None:
        del waits
        self._add(index)

    def _leave(self, hook: ModuleHook) -> None:
        pass


class Gradients(NamedTuple):
    """As backward makes them."""

    ready: dict[int, list[int]]
    """Tensors, by the hook that comes next."""
    in_leaves: set[int]
    """Tensors whose gradients wait until their module's backward is over."""


@cached(_arrivals_key)
def gradients(job: Job) -> Gradients:
    """When gradients are there, whole."""
    result, ready = ReadyRecorder(job), dict[int, list[int]]()
    result.run(nothing_gathered(job))
    for index, at in all_events(result.arrived.blocks()):
        ready.setdefault(at, []).append(index)
    return Gradients(ready, result.in_leaves)


def nothing_gathered(job: Job) -> MicroStep:
    """Backward's hooks that use tensors."""
    nothing = GatheredMemory(0, 0, 0, 0, job.execution.forward[-1], 0)
    return MicroStep((), (RepeatedBlock((nothing,)),), pass_hooks(job, 1, using=True), ())


@cached(reductions_key)
def reductions(job: Job) -> Reductions:
    """What a backward sends, bucket by bucket."""
    sent: list[CollectiveCall] = []
    flushes: list[Flush] = []
    padded, ranks, quantizes = padded_sizes(job), job.ranks, quantizes_gradients(job)
    for dtype, bucket, at in _full(job):
        flushes.append(Flush(bucket.elements, at))
        if all_reduced(job.strategy, bucket.elements):
            sent.append(CollectiveCall("all_reduce", bucket.elements, dtype, ranks))
        elif quantizes:  # tensor by tensor
            sent += [part for index in sorted(bucket.tensors) for part in reduced(job, index)]
        else:
            sent.append(
                CollectiveCall("reduce_scatter", sum([padded[index] for index in bucket.tensors]), dtype, ranks)
            )
    return Reductions(tuple(sent), tuple(flushes))


@cached(reductions_key)
def to_host(job: Job) -> dict[int, int]:
    """Elements of each reduced partition that goes to the host: an all-reduce leaves it padded."""
    own, result = own_shares(job), dict[int, int]()
    for _dtype, bucket, _at in _full(job):
        shares = own.padded if all_reduced(job.strategy, bucket.elements) else own.cut
        result.update({index: shares[index] for index in bucket.tensors})
    return result


def _full(job: Job) -> Iterator[tuple[str, Bucket, int]]:
    """Buckets, dtype by dtype, and the hook before which each is reduced: when the next gradient has no room in it."""
    dtypes, sizes, limit = communication_dtypes(job), tensor_sizes(job), job.strategy.reduce_bucket_size
    for dtype in bucket_dtypes(job):
        here = {tensor: at for tensor, at in arrivals(job) if dtypes[tensor] == dtype}
        found = list(buckets(here, sizes, limit))
        for bucket, following in zip_longest(found, found[1:]):
            yield dtype, bucket, here[following.tensors[0]] if following else END


@cached(strategy_key)
def backward_of(job: Job) -> Stage3Backward:
    """The third step's backward passes, already run: their peak."""
    return replay_backward(job, *micro_steps(job).largest)


def replay_backward(job: Job, *run: MicroStep, ends: bool = True) -> Stage3Backward:
    """One backward after the other; `ends`: the last is the optimizer step's last."""
    result = Stage3Backward(job)
    for number, micro_step in enumerate(run, 1):
        result.boundary = ends and number == len(run)
        result.run(micro_step)
    return result
