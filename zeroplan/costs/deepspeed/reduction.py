"""Replay of gradient reduction: which tensors share a bucket, and which collectives a flush sends.

It follows DeepSpeed 0.19.8's own order of events: runtime/zero/stage_1_and_2.py
(reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter) and, for stage 3,
runtime/zero/stage3.py (reduce_independent_p_g_buckets_and_remove_grads). Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.costs.cache import cached, gradients, order_free_key
from zeroplan.costs.deepspeed.layout import flat_groups, fp32_groups, own_pieces, rank_of, tensor_sizes
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


class Bucket(NamedTuple):
    """Tensors reduced together, by index, in the order they arrived."""

    tensors: tuple[int, ...]
    elements: int
    oversized: bool
    """One tensor larger than the bucket, reduced where it is."""


class ReduceCall(NamedTuple):
    kind: str
    """all_reduce or reduce."""
    elements: int
    pieces: int
    """Slices that are copied into one tensor for it, when there are several."""
    kept: int
    """The largest slice in it that this rank adds to its fp32 partition."""


def buckets(order: Iterable[int], sizes: list[int], limit: int) -> Iterator[Bucket]:
    """Close a bucket when the next tensor would overflow it; a tensor over the limit goes alone."""
    members: list[int] = []
    elements = 0
    for index in order:
        if elements + sizes[index] > limit and members:
            yield Bucket(tuple(members), elements, elements > limit)
            members, elements = [], 0
        members.append(index)
        elements += sizes[index]
    if members:
        yield Bucket(tuple(members), elements, elements > limit)


def all_reduced(strategy: Strategy, filled: int) -> bool:
    """Whether stage 3 all-reduces a bucket of so many elements whole, rather than to each partition's owner."""
    fits = strategy.contiguous_gradients and filled <= strategy.reduce_bucket_size
    return fits and not strategy.scatters


class Slice(NamedTuple):
    owner: int
    elements: int
    added: bool = False
    """This rank adds it to its fp32 partition."""
    shared: tuple[int, ...] = ()
    """All ranks that keep it, where a matrix of Muon's lies on several."""


def runs(parts: Iterable[Slice], limit: int) -> Iterator[list[Slice]]:
    """Slices joined into runs: one closes as soon as its elements exceed the limit."""
    run: list[Slice] = []
    filled = 0
    for part in parts:
        run.append(part)
        filled += part.elements
        if filled > limit:
            yield run
            run, filled = [], 0
    if run:
        yield run


ENGINE_RUN = 500_000_000
"""Elements after which the engine closes a run of gradients (runtime/engine.py:allreduce_no_retain)."""


def engine_runs(sizes: Iterable[int]) -> Iterator[list[Slice]]:
    """Tensors that the engine joins and all-reduces together, at stage 0 and for BF16_Optimizer."""
    return runs((Slice(0, size) for size in sizes), ENGINE_RUN)


class Reduction:
    """What buckets of a job's gradients send at stages 1 and 2."""

    def __init__(self, job: Job) -> None:
        self.strategy, self.sizes, self.rank = job.strategy, tensor_sizes(job), rank_of(job)
        self.groups, self.fp32 = flat_groups(job), fp32_groups(job)
        self.own = {index: piece for index, piece in own_pieces(job).items() if piece.group in self.fp32}
        self.group_of = {index: number for number, group in enumerate(self.groups) for index in group.pieces}
        self.scatters = job.strategy.contiguous and job.strategy.scatters
        self.known: dict[tuple[int, ...], tuple[ReduceCall, ...]] = {}

    def of(self, bucket: tuple[int, ...]) -> tuple[ReduceCall, ...]:
        """The collectives of a bucket's tensors, worked out once."""
        if bucket not in self.known:
            self.known[bucket] = tuple(self._scattered(bucket)) if self.scatters else (self._whole(bucket),)
        return self.known[bucket]

    def _whole(self, bucket: tuple[int, ...]) -> ReduceCall:
        """Without reduce_scatter it is all-reduced: in place, or, without contiguous gradients, copied into one."""
        kept = max((self.own[index].elements for index in bucket if index in self.own), default=0)
        pieces = 1 if self.strategy.contiguous else len(bucket)
        return ReduceCall("all_reduce", sum(self.sizes[index] for index in bucket), pieces, kept)

    def _scattered(self, bucket: tuple[int, ...]) -> Iterator[ReduceCall]:
        """With use_multi_rank_bucket_allreduce its slices are joined and all-reduced, else reduced to each owner.

        Either way a run closes once it exceeds the bucket size. A matrix of Muon's that lies on several ranks is
        all-reduced in any case.
        """
        by_target: dict[int | None, list[Slice]] = {}
        for piece in self._slices(bucket):
            to_all = self.strategy.use_multi_rank_bucket_allreduce or piece.shared
            by_target.setdefault(None if to_all else piece.owner, []).append(piece)
        for target, found in by_target.items():
            for run in runs(found, self.strategy.reduce_bucket_size):
                kept = max((piece.elements for piece in run if piece.added), default=0)
                kind = "all_reduce" if target is None else "reduce"
                yield ReduceCall(kind, sum(piece.elements for piece in run), len(run), kept)

    def _slices(self, bucket: tuple[int, ...]) -> list[Slice]:
        """A bucket cut at partition boundaries; neighbours of one owner join unless this rank adds them to its fp32
        partition. Of Muon's matrices neighbours join only if the same ranks keep them.
        """
        apart = frozenset[int]() if self.strategy.selective else self.fp32  # ZenFlow joins them all the same
        result: list[Slice] = []
        last: Slice | None = None
        filled = 0
        """Elements that have joined the last one."""
        for index in bucket:
            number = self.group_of[index]
            group = self.groups[number]
            pieces = group.pieces[index]
            shared = tuple(owner for owner, _elements in pieces) if group.muon and len(pieces) > 1 else ()
            for owner, elements in pieces:
                added = owner == self.rank and number in apart
                if last and not added and last.owner == owner and not last.added and last.shared == shared:
                    filled += elements
                    continue
                if last:
                    result.append(last._replace(elements=filled))
                last, filled = Slice(owner, elements, added, shared), elements
        return [*result, last._replace(elements=filled)] if last else result


@cached(order_free_key, order=gradients)
def reduction(job: Job) -> Reduction:
    return Reduction(job)
