"""How the result of an elementwise operator lies in memory (ATen/TensorIterator.cpp)."""

from __future__ import annotations

from zeroplan.autograd.strides import broadcast, broadcast_strides, infer_dense_strides, is_dense
from zeroplan.autograd.tensor import Tensor, empty


def tensor_iterator(operands: tuple[Tensor, ...], width: int) -> Tensor:
    """A new tensor of the operands' common shape, laid out in the order of their strides."""
    first = operands[0]
    shape, strides = first.shape, first.strides
    for x in operands:  # a loop, where `all` would say it: it runs thousands of times
        if x.shape != shape or x.strides != strides:
            break
    else:
        if is_dense(shape, strides):
            return empty(first.memory, shape, width, strides)
    shape = broadcast(tuple(x.shape for x in operands))
    if all(x.is_contiguous for x in operands):
        return empty(first.memory, shape, width)
    seen = [broadcast_strides(x.shape, x.strides, shape) for x in operands]
    return empty(first.memory, shape, width, infer_dense_strides(shape, *seen))
