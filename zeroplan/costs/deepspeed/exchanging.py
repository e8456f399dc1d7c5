"""Replay of Muon in BF16_Optimizer's step: each rank orthogonalizes the matrices that it holds a piece of.

DeepSpeed 0.19.8 runtime/bf16_optimizer.py: _build_muon_exchange_layout, _prepare_muon_updates. Pieces of momentum are
exchanged where a matrix lies on several ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.costs.deepspeed.alive import Alive, Copy
from zeroplan.costs.deepspeed.layout import Group, flat_groups, rank_of, tensor_sizes
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.orthogonalizing import own_matrices, working
from zeroplan.errors import ContradictionError
from zeroplan.formulas import muon
from zeroplan.specs.job import Job


class Exchange(NamedTuple):
    """Of one group, elements of momentum that this rank sends and receives."""

    sent: int
    received: int


def check_matrices(job: Job) -> None:
    """Raises `ContradictionError` for a stack of matrices, which BF16_Optimizer refuses under Muon."""
    stacked = [job.model.tensors[index].name for index in matrices(job) if len(job.model.tensors[index].shape) != 2]
    if stacked:
        raise ContradictionError(
            f"optimizer: found Muon at stage 1 in bf16 with fp32 accumulation and {min(stacked)}, a stack of matrices; "
            "DeepSpeed refuses that (runtime/bf16_optimizer.py:66), "
            'write "data_types": {"grad_accum_dtype": "bf16"}, or another stage'
        )


def exchanges(job: Job) -> Iterator[Exchange]:
    """One for each group of Muon's in which some matrix lies on several ranks."""
    rank = rank_of(job)
    for layout in flat_groups(job):
        if layout.muon and any(len(pieces) > 1 for pieces in layout.pieces.values()):
            yield _exchange(layout, rank)


def _exchange(layout: Group, rank: int) -> Exchange:
    sent, received = 0, 0
    for pieces in layout.pieces.values():
        own = sum(elements for owner, elements in pieces if owner == rank)
        sent += own * (len(pieces) - 1)
        received += sum(elements for _owner, elements in pieces) - own if own else 0
    return Exchange(sent, received)


def prepare(job: Job, alive: Alive) -> None:
    """What a group's loop leaves is there until the next one takes its place; all of it goes in the end."""
    sizes, rank, dtype = tensor_sizes(job), rank_of(job), "float32"
    left: dict[str, Copy] = {}

    def put(name: str, *made: Copy) -> None:
        """A name is given something else: what it stood for goes after."""
        for copy in made:
            alive.make(*copy)
        if name in left:
            alive.free(*left.pop(name))
        if made:
            left[name] = made[0]

    for number, layout in enumerate(flat_groups(job)):
        if not layout.muon:
            continue
        exchange = _exchange(layout, rank)
        put("received", (muon.exchanged_momentum, dtype, exchange.received))
        if any(len(pieces) > 1 for pieces in layout.pieces.values()):
            put("sent", (muon.exchanged_momentum, dtype, exchange.sent))
        for index in own_matrices(job).get(number, ()):
            copy: Copy = (muon.matrix_copies, dtype, sizes[index])
            put("momentum", *([copy] if len(layout.pieces[index]) > 1 else []))
            alive.briefly(copy, working(job, index, dtype))
            put("update", (muon.updates, dtype, sizes[index]))
    for copy in left.values():
        alive.free(*copy)
