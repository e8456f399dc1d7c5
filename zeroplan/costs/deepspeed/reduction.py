"""Replay of gradient reduction: which tensors share a bucket, and which collectives a flush sends.

It follows DeepSpeed 0.19.8's own order of events: runtime/zero/stage_1_and_2.py
(reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter) and, for stage 3,
runtime/zero/stage3.py (reduce_independent_p_g_buckets_and_remove_grads). Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.costs.deepspeed.layout import Group


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


def runs(sizes: Iterable[int], limit: int) -> Iterator[int]:
    """Elements of each run of tensors: one closes as soon as it exceeds the limit."""
    elements = 0
    for size in sizes:
        elements += size
        if elements > limit:
            yield elements
            elements = 0
    if elements:
        yield elements


class Slice(NamedTuple):
    owner: int
    elements: int


def slices(bucket: Bucket, groups: list[Group]) -> list[Slice]:
    """The bucket cut at partition boundaries; neighbours of one owner join."""
    found: list[Slice] = []
    for index in bucket.tensors:
        for owner, elements in groups_of(groups, index):
            if found and found[-1].owner == owner:
                found[-1] = Slice(owner, found[-1].elements + elements)
            else:
                found.append(Slice(owner, elements))
    return found


def groups_of(groups: list[Group], index: int) -> list[tuple[int, int]]:
    """Owner and elements of each piece of a tensor."""
    return next(group.pieces[index] for group in groups if index in group.pieces)


def flush(bucket: Bucket, groups: list[Group], *, limit: int, scatter: bool, multi_rank: bool) -> Iterator[Collective]:
    """The collectives of one bucket at stages 1 and 2.

    With `scatter` off the bucket is all-reduced whole. With `multi_rank` the slices are joined and all-reduced,
    else those of each owner are reduced to it; either way a run closes once it exceeds the bucket size.
    """
    if not scatter:
        yield Collective("all_reduce", bucket.elements)
        return
    by_target: dict[int, list[Slice]] = {}
    for piece in slices(bucket, groups):
        by_target.setdefault(0 if multi_rank else piece.owner, []).append(piece)
    kind = "all_reduce" if multi_rank else "reduce"
    for run in by_target.values():
        yield from (Collective(kind, elements) for elements in runs((piece.elements for piece in run), limit))
