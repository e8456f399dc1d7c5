"""Muon's update of whole matrices at stages 0 to 2: its products, what it makes for a while, and where it runs.

DeepSpeed 0.19.8 runtime/zero/muon/original_muon.py (muon_update and its two iterations, in 16 bit; torch.compile
joins some of the operators on a card, the recorded runs are eager), muon_optimizer.py (step),
runtime/zero/stage_1_and_2.py (get_flat_partition: as the last backward of a step ends). In BF16_Optimizer's step each
rank orthogonalizes the matrices that it holds a piece of, and pieces of momentum are exchanged where a matrix lies on
several (runtime/bf16_optimizer.py: _build_muon_exchange_layout, _prepare_muon_updates).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import prod
from typing import NamedTuple

from zeroplan.costs.allocations import Allocation, AllocationTracker, Variables
from zeroplan.costs.deepspeed.layout import Group, flat_groups, own_matrices, rank_of, tensor_sizes
from zeroplan.costs.deepspeed.muon import gradient_dtype
from zeroplan.formulas import muon, transient
from zeroplan.ledger import DTYPE_BYTES
from zeroplan.specs.job import Job

COMPUTED = {"gram": "float16", "standard": "bfloat16"}
"""The dtype that each iteration runs in (ns_compute_dtype)."""


STEPS = 5
"""Steps of the iteration; nothing sets another number."""


class ProductFlops(NamedTuple):
    """Matrix products of one update."""

    flops: int
    touched: int
    """Bytes of operands and results, in 16 bit."""


@lru_cache(maxsize=256)
def products(shape: tuple[int, ...], method: str) -> ProductFlops:
    """Products for a matrix of n rows and m columns, n the less of both, or for a stack of them.

    Five steps of the standard iteration are two products of n·n·m and one of n·n·n each. The gram iteration has four of
    the former in all (X·Xᵀ and Q·X, both once more where it begins again) and 14 of the latter (Z, Q, RZ and R in the
    middle step; no Q in a first one, no RZ and R in a last); a square matrix takes the standard one.
    """
    n, m = sorted(shape[-2:])
    count = prod(shape[:-2])
    long, short = (4, 14) if method == "gram" and n < m else (2 * STEPS, STEPS)
    flops = 2 * n * n * (long * m + short * n)
    touched = 2 * (long * (2 * n * m + n * n) + short * 3 * n * n)
    return ProductFlops(count * flops, count * touched)


def workspace(shape: tuple[int, ...], dtype: str, method: str) -> int:
    """Most bytes beside a gradient and its momentum, both of `dtype`; the update that comes back counts in them."""
    n, w = prod(shape), DTYPE_BYTES[dtype]
    finite = n * (w + 3)  # magnitudes, and three masks
    blended = 2 * n * w  # the new momentum, and the one that is taken
    return max(finite, blended, _normalized(n, dtype, method), _iterated(shape, method), _returned(n, dtype, method))


def _normalized(n: int, dtype: str, method: str) -> int:
    """The matrix divided by its norm: in fp32 for an fp16 gradient before the cast to 16 bit, or after the cast."""
    if method == "standard":
        return 2 * n * (1 if dtype == COMPUTED[method] else 2)
    quotient = 4 * n if dtype == "float16" else DTYPE_BYTES[dtype] * n
    return quotient + 2 * n + (4 * n if dtype == "float16" else 0)


def _iterated(shape: tuple[int, ...], method: str) -> int:
    """The matrix X in 16 bit beside products as large as its Gram matrix X·Xᵀ, those of a stack of matrices together.

    The gram iteration keeps R, Z, Q and RZ and makes three more of them, or the next X; the other one makes X again.
    """
    low, high = sorted(shape[-2:])
    x = 2 * prod(shape)
    gram = x * low // high
    if method == "gram" and low < high:
        return max(x + 7 * gram, 2 * x + 4 * gram)
    return max(4 * x + 2 * gram, x + 5 * gram)


def _returned(n: int, dtype: str, method: str) -> int:
    """Back in the gradient's dtype, then chosen if the gradient was finite."""
    w = DTYPE_BYTES[dtype]
    return max(0 if dtype == COMPUTED[method] else (2 + w) * n, 2 * w * n)


def own_elements(job: Job) -> int:
    """O: elements of those tensors, which are whole on each rank that they touch."""
    sizes = tensor_sizes(job)
    return sum(sizes[index] for members in own_matrices(job).values() for index in members)


def orthogonalize(job: Job, tracker: AllocationTracker, members: Iterable[int]) -> None:
    """One matrix after the other; the updates stay."""
    dtype = gradient_dtype(job)
    for index in members:
        tensor = job.model.tensors[index]
        tracker.transient_peak(newton_schulz_temporary(job, index, dtype))
        tracker.allocate(muon.updates, dtype, tensor.elements)


def free_updates(job: Job, tracker: AllocationTracker, members: Iterable[int]) -> None:
    """What `orthogonalize` left of them, once the step has read it."""
    dtype = gradient_dtype(job)
    for index in members:
        tracker.free(muon.updates, dtype, job.model.tensors[index].elements)


def newton_schulz_temporary(job: Job, index: int, dtype: str) -> Allocation:
    """What `muon_update` makes for a while, the update that it gives back included."""
    size = workspace(job.model.tensors[index].shape, dtype, job.strategy.ns_method)
    return muon.orthogonalizing, "uint8", size


def update_whole(job: Job, tracker: AllocationTracker, *, makes_states: bool) -> None:
    """Stage 0: one matrix after the other, the update of the one before still there; then Adam's half goes."""
    before: list[Allocation] = []
    for layout in flat_groups(job):
        for index in layout.order if layout.muon else ():
            if makes_states:
                tracker.allocate(transient.first_states, "float32", tensor_sizes(job)[index])
            tracker.transient_peak(*before, newton_schulz_temporary(job, index, "float32"))
            before = [_update(job, index)]


def last_update(job: Job) -> list[Allocation]:
    """The one that is there until the step ends."""
    last = [layout.order[-1] for layout in flat_groups(job) if layout.muon]
    return [_update(job, last[-1])] if last else []


def _update(job: Job, index: int) -> Allocation:
    return muon.updates, "float32", tensor_sizes(job)[index]


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
