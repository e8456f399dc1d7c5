"""Replay of gradient reduction: which tensors share a bucket, and which collectives a flush sends.

It follows DeepSpeed 0.19.8's own order of events: runtime/zero/stage_1_and_2.py
(reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter) and, for stage 3,
runtime/zero/stage3.py (reduce_independent_p_g_buckets_and_remove_grads). Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.costs.deepspeed.layout import Group, flat_groups, own_pieces, rank_of, tensor_sizes
from zeroplan.specs.job import Job


class Bucket(NamedTuple):
    """Tensors reduced together, by index, in the order they arrived."""

    tensors: tuple[int, ...]
    elements: int
    oversized: bool
    """One tensor larger than the bucket, reduced where it is."""


class Collective(NamedTuple):
    kind: str
    """all_reduce or reduce."""
    elements: int
    pieces: int
    """Slices that are copied into one tensor for it, when there are several."""
    kept: int
    """The largest slice in it that this rank adds to its fp32 partition."""


def buckets(order: Iterable[int], sizes: list[int], limit: int) -> Iterator[Bucket]:
    """Close a bucket when the next tensor would overflow it; a tensor over the limit goes alone."""
    held: list[int] = []
    elements = 0
    for index in order:
        if elements + sizes[index] > limit and held:
            yield Bucket(tuple(held), elements, elements > limit)
            held, elements = [], 0
        held.append(index)
        elements += sizes[index]
    if held:
        yield Bucket(tuple(held), elements, elements > limit)


class Slice(NamedTuple):
    owner: int
    elements: int


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


def slices(tensors: Iterable[int], groups: list[Group], apart: int | None) -> list[Slice]:
    """A bucket cut at partition boundaries; neighbours of one owner join, but not those of the rank `apart`."""
    found: list[Slice] = []
    for index in tensors:
        for owner, elements in groups_of(groups, index):
            if found and found[-1].owner == owner != apart:
                found[-1] = Slice(owner, found[-1].elements + elements)
            else:
                found.append(Slice(owner, elements))
    return found


def groups_of(groups: list[Group], index: int) -> list[tuple[int, int]]:
    """Owner and elements of each piece of a tensor."""
    return next(group.pieces[index] for group in groups if index in group.pieces)


def collectives(job: Job, tensors: tuple[int, ...]) -> Iterator[Collective]:
    """What one bucket sends at stages 1 and 2.

    Without reduce_scatter it is all-reduced whole: in place, or, without contiguous gradients, copied into one
    tensor. With use_multi_rank_bucket_allreduce its slices are joined and all-reduced, else those of each owner are
    reduced to it; either way a run closes once it exceeds the bucket size.
    """
    strategy, sizes = job.strategy, tensor_sizes(job)
    apart = strategy.keeps_fp32_partition and not strategy.selective  # which joins them all the same
    rank = rank_of(job) if apart else None
    if not strategy.contiguous or not strategy.scatters:
        own = own_pieces(job) if strategy.keeps_fp32_partition else {}
        kept = max((own[index].elements for index in tensors if index in own), default=0)
        pieces = 1 if strategy.contiguous else len(tensors)
        yield Collective("all_reduce", sum(sizes[index] for index in tensors), pieces, kept)
        return
    multi_rank = strategy.use_multi_rank_bucket_allreduce
    by_target: dict[int, list[Slice]] = {}
    for piece in slices(tensors, flat_groups(job), rank):
        by_target.setdefault(0 if multi_rank else piece.owner, []).append(piece)
    for found in by_target.values():
        for run in runs(found, strategy.reduce_bucket_size):
            kept = max((piece.elements for piece in run if piece.owner == rank), default=0)
            kind = "all_reduce" if multi_rank else "reduce"
            yield Collective(kind, sum(piece.elements for piece in run), len(run), kept)
