"""How stages 1 and 2 lay a parameter group out: one flat buffer, cut into equal partitions through tensors.

DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py: __init__, _round_robin_reorder, initialize_gradient_partition.
Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.arithmetic import round_up

START_ALIGNMENT = 2
"""nccl_start_alignment_factor: all-gather send buffers start at 4 bytes."""


class Group(NamedTuple):
    """One parameter group: tensors by index into the model's, with the pieces that ranks own."""

    order: tuple[int, ...]
    """The group's tensors as the optimizer has them."""
    flat: int
    """Elements of the flat buffer, padding included."""
    partition: int
    """Elements of one rank's partition."""
    pieces: dict[int, list[tuple[int, int]]]
    """Tensor -> (owner, elements) of each piece, from its start to its end."""


def group(indices: Sequence[int], sizes: Sequence[int], ranks: int, *, round_robin: bool) -> Group:
    """Lay the tensors `indices` out over `ranks`."""
    laid = list(indices)
    if round_robin:  # tensor i goes to list i mod ranks, and the lists are joined
        laid = [index for rank in range(ranks) for index in laid[rank::ranks]]
    flat = round_up(sum(sizes[index] for index in laid), START_ALIGNMENT * ranks)
    share = flat // ranks
    pieces: dict[int, list[tuple[int, int]]] = {}
    start = 0
    for index in laid:
        end = start + sizes[index]
        owners = range(start // share, (end - 1) // share + 1)
        pieces[index] = [(o, min(end, (o + 1) * share) - max(start, o * share)) for o in owners]
        start = end
    return Group(tuple(indices), flat, share, pieces)


def own_tensors(layout: Group, rank: int) -> list[int]:
    """Tensors that touch a rank's partition, in the order they lie there."""
    return [index for index, pieces in layout.pieces.items() if any(owner == rank for owner, _n in pieces)]
