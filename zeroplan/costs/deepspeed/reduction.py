"""Replay of gradient reduction: which tensors share a bucket, and which collectives a flush sends.

It follows DeepSpeed 0.19.8's own order of events: runtime/zero/stage_1_and_2.py
(reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter) and, for stage 3,
runtime/zero/stage3.py (reduce_independent_p_g_buckets_and_remove_grads). Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.costs.deepspeed.layout import Group, flat_groups, fp32_groups, own_pieces, rank_of, tensor_sizes
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


def slices(tensors: Iterable[int], groups: list[Group], rank: int, fp32: frozenset[int]) -> list[Slice]:
    """A bucket cut at partition boundaries; neighbours of one owner join unless `rank` adds them to its fp32 partition.

    That is there for the groups `fp32`. Of Muon's matrices neighbours join only if the same ranks keep them.
    """
    found: list[Slice] = []
    for index in tensors:
        number = group_of(groups, index)
        pieces = groups[number].pieces[index]
        shared = tuple(owner for owner, _elements in pieces) if groups[number].muon and len(pieces) > 1 else ()
        for owner, elements in pieces:
            added = owner == rank and number in fp32
            last = found[-1] if found and not added else None
            if last is not None and last.owner == owner and not last.added and last.shared == shared:
                found[-1] = last._replace(elements=last.elements + elements)
            else:
                found.append(Slice(owner, elements, added, shared))
    return found


def group_of(groups: list[Group], index: int) -> int:
    """The number of a tensor's group."""
    return next(number for number, group in enumerate(groups) if index in group.pieces)


def collectives(job: Job, tensors: tuple[int, ...]) -> Iterator[Collective]:
    """What one bucket sends at stages 1 and 2.

    Without reduce_scatter it is all-reduced whole: in place, or, without contiguous gradients, copied into one
    tensor. With use_multi_rank_bucket_allreduce its slices are joined and all-reduced, else those of each owner are
    reduced to it; either way a run closes once it exceeds the bucket size. A matrix of Muon's that lies on several
    ranks is all-reduced in any case.
    """
    strategy, sizes, fp32 = job.strategy, tensor_sizes(job), fp32_groups(job)
    if not strategy.contiguous or not strategy.scatters:
        own = {index: piece for index, piece in own_pieces(job).items() if piece.group in fp32} if fp32 else {}
        kept = max((own[index].elements for index in tensors if index in own), default=0)
        pieces = 1 if strategy.contiguous else len(tensors)
        yield Collective("all_reduce", sum(sizes[index] for index in tensors), pieces, kept)
        return
    apart = frozenset[int]() if strategy.selective else fp32  # ZenFlow joins them all the same
    by_target: dict[int | None, list[Slice]] = {}
    for piece in slices(tensors, flat_groups(job), rank_of(job), apart):
        to_all = strategy.use_multi_rank_bucket_allreduce or piece.shared
        by_target.setdefault(None if to_all else piece.owner, []).append(piece)
    for target, found in by_target.items():
        for run in runs(found, strategy.reduce_bucket_size):
            kept = max((piece.elements for piece in run if piece.added), default=0)
            kind = "all_reduce" if target is None else "reduce"
            yield Collective(kind, sum(piece.elements for piece in run), len(run), kept)
