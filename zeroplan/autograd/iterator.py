"""How the result of an elementwise operator lies in memory (ATen/TensorIterator.cpp)."""

from __future__ import annotations

from zeroplan.autograd.strides import Sizes, broadcast, broadcast_strides, is_dense
from zeroplan.autograd.tensor import Tensor, empty


def iterated(operands: tuple[Tensor, ...], width: int) -> Tensor:
    """A new tensor of the operands' common shape, laid out in the order of their strides."""
    first = operands[0]
    shape = first.shape
    if all(x.shape == shape and x.strides == first.strides for x in operands) and is_dense(shape, first.strides):
        return empty(first.memory, shape, width, first.strides)
    shape = broadcast(tuple(x.shape for x in operands))
    if all(x.contiguous for x in operands):
        return empty(first.memory, shape, width)
    return empty(first.memory, shape, width, _permuted(operands, shape))


def _permuted(operands: tuple[Tensor, ...], shape: Sizes) -> Sizes:
    """Strides of the result: dimensions from the smallest stride of the operands to the largest."""
    rank = len(shape)
    strides = [broadcast_strides(x.shape, x.strides, shape) for x in operands]
    order = list(range(rank - 1, -1, -1))
    for at in range(1, rank):
        here = at
        for before in range(at - 1, -1, -1):
            verdict = _compared(strides, shape, order[before], order[here])
            if verdict > 0:
                order[before], order[here] = order[here], order[before]
                here = before
            elif verdict < 0:
                break
    found, step = [0] * rank, 1
    for dimension in order:
        found[dimension] = step
        step *= shape[dimension]
    return tuple(found)


def _compared(strides: list[Sizes], shape: Sizes, one: int, other: int) -> int:
    """1 where `one` lies farther apart than `other`, -1 where closer, 0 where nothing tells."""
    for each in strides:
        if each[one] and each[other]:
            if each[one] != each[other]:
                return 1 if each[one] > each[other] else -1
            if shape[one] > shape[other]:
                return 1
    return 0
