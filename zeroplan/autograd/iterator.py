"""How the result of an elementwise operator lies in memory (ATen/TensorIterator.cpp)."""

from __future__ import annotations

from zeroplan.autograd.strides import broadcast, broadcast_strides, dense_strides, is_dense
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
    strides = [broadcast_strides(x.shape, x.strides, shape) for x in operands]
    return empty(first.memory, shape, width, dense_strides(shape, *strides))
