"""Replay of Muon in BF16_Optimizer's step: each rank orthogonalizes the matrices that it holds a piece of.

DeepSpeed 0.19.8 runtime/bf16_optimizer.py: _build_muon_exchange_layout, _prepare_muon_updates. Pieces of momentum are
exchanged where a matrix lies on several ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.costs.deepspeed.allocation_tracker import Allocation, AllocationTracker, Variables
from zeroplan.costs.deepspeed.layout import Group, flat_groups, rank_of, tensor_sizes
from zeroplan.costs.deepspeed.muon_update import newton_schulz_temporary, own_matrices
from zeroplan.formulas import muon
from zeroplan.specs.job import Job


class Exchange(NamedTuple):
    """Elements of one group's momentum that this rank sends and receives."""

    sent: int
    received: int


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


def prepare(job: Job, tracker: AllocationTracker) -> None:
    """What a group's loop leaves is there until the next one takes its place; all of it goes in the end."""
    sizes, rank, dtype, variables = tensor_sizes(job), rank_of(job), "float32", Variables(tracker)
    for number, layout in enumerate(flat_groups(job)):
        if not layout.muon:
            continue
        exchange = _exchange(layout, rank)
        variables.put("received", (muon.exchanged_momentum, dtype, exchange.received))
        if any(len(pieces) > 1 for pieces in layout.pieces.values()):
            variables.put("sent", (muon.exchanged_momentum, dtype, exchange.sent))
        for index in own_matrices(job).get(number, ()):
            copy: Allocation = (muon.matrix_copies, dtype, sizes[index])
            variables.put("momentum", *([copy] if len(layout.pieces[index]) > 1 else []))
            tracker.transient_peak(copy, newton_schulz_temporary(job, index, dtype))
            variables.put("update", (muon.updates, dtype, sizes[index]))
    variables.leave()
