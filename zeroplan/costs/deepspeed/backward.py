"""Backward passes of stage 3, run: their largest moments, when which gradient reaches its bucket, what is reduced."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from zeroplan.costs.deepspeed.alive import END
from zeroplan.costs.deepspeed.events import Flush, Held, MicroStep
from zeroplan.costs.deepspeed.fetch import backward_visits, decides_visits, micro_steps
from zeroplan.costs.deepspeed.layout import (
    bucket_dtypes,
    communication_dtypes,
    decides_groups,
    own_shares,
    shard_sizes,
    tensor_sizes,
)
from zeroplan.costs.deepspeed.once import once, whole
from zeroplan.costs.deepspeed.partitioning import Partitioning
from zeroplan.costs.deepspeed.quantizing import Part, quantizes_gradients, reduced
from zeroplan.costs.deepspeed.reduction import Bucket, all_reduced, buckets
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


class Arrival(NamedTuple):
    """A gradient reaches its bucket."""

    tensor: int
    at: int
    """The visit of backward that comes next; END when none does."""


class Reductions(NamedTuple):
    """Of one backward."""

    sent: tuple[Part, ...]
    flushes: tuple[Flush, ...]
    offloaded: dict[int, int]
    """Elements of each reduced partition that goes to the host."""


def _decides_arrivals(strategy: Strategy) -> Hashable:
    """Gradients come in one order, however far parameters are gathered ahead, wherever they go."""
    return (
        decides_visits(strategy), strategy.memory_efficient_linear, decides_groups(strategy), strategy.low,
    )  # fmt: skip


def decides_reductions(strategy: Strategy) -> Hashable:
    return (
        _decides_arrivals(strategy), strategy.reduce_bucket_size, strategy.scatters, strategy.communication,
        strategy.quantized_gradients,
    )  # fmt: skip


class Arriving(Partitioning):
    """Nothing is reduced."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.arrived: list[Arrival] = []

    def _add(self, index: int) -> None:
        self.arrived.append(Arrival(index, self.visit))


@once(_decides_arrivals)
def arrivals(job: Job) -> tuple[Arrival, ...]:
    """Gradients in the order in which they reach their bucket, each when its module's backward is done."""
    forward, backward = (
        tuple(Held(0, 0, 0, 0, visit, at) for at, visit in enumerate(visits) if visit.tensors)
        for visits in (job.execution.forward, backward_visits(job))
    )
    found = Arriving(job)
    found.run(MicroStep((), forward, backward, ()))
    return tuple(found.arrived)


@once(decides_reductions)
def reductions(job: Job) -> Reductions:
    """What a backward sends, bucket by bucket."""
    sent: list[Part] = []
    flushes: list[Flush] = []
    offloaded: dict[int, int] = {}
    own = own_shares(job)
    for dtype in bucket_dtypes(job):
        for bucket, at in _full(job, dtype):
            flushes.append(Flush(bucket.elements, at))
            sent += _sent(job, bucket, dtype)
            shares = own.padded if all_reduced(job.strategy, bucket.elements) else own.cut
            offloaded.update({index: shares[index] for index in bucket.tensors})
    return Reductions(tuple(sent), tuple(flushes), offloaded)


def _full(job: Job, dtype: str) -> Iterator[tuple[Bucket, int]]:
    """Buckets of one dtype, and the visit before which each is reduced: when the next gradient has no room in it."""
    dtypes, sizes, limit = communication_dtypes(job), tensor_sizes(job), job.strategy.reduce_bucket_size
    here = {tensor: at for tensor, at in arrivals(job) if dtypes[tensor] == dtype}
    found = list(buckets(here, sizes, limit))
    for bucket, following in zip_longest(found, found[1:]):
        yield bucket, here[following.tensors[0]] if following else END


def _sent(job: Job, bucket: Bucket, dtype: str) -> list[Part]:
    """All-reduced whole, quantized tensor by tensor, or each tensor padded to all ranks and reduced to its owners."""
    if all_reduced(job.strategy, bucket.elements):
        return [Part("all_reduce", bucket.elements, dtype, job.ranks)]
    if quantizes_gradients(job):
        return [part for index in sorted(bucket.tensors) for part in reduced(job, index)]
    padded = sum([share * job.ranks for share in map(shard_sizes(job).__getitem__, bucket.tensors)])
    return [Part("reduce_scatter", padded, dtype, job.ranks)]


@once(whole)
def backward_of(job: Job) -> Partitioning:
    """The third step's backward passes, already run: their peak."""
    return partitioned(job, *micro_steps(job).largest)


def partitioned(job: Job, *run: MicroStep, ends: bool = True) -> Partitioning:
    """One backward after the other; `ends`: the last is the optimizer step's last."""
    found = Partitioning(job)
    for number, micro_step in enumerate(run, 1):
        found.boundary = ends and number == len(run)
        found.run(micro_step)
    return found
