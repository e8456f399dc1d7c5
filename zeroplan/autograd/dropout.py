"""Dropout: the mask is what it keeps, in the dtype of its input on the CPU, as one byte an element on CUDA."""

from __future__ import annotations

from zeroplan.autograd.elementwise import iterated, multiply
from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.tensor import Tensor, empty_like

BOOL = 1


def dropped(x: Tensor, probability: float | None, *, on_cpu: bool) -> Tensor:
    """x with some elements 0 and the others scaled; x itself without a probability (ATen/native/Dropout.cpp)."""
    if not probability:
        return x
    if on_cpu:
        return multiply(x, empty_like(x))
    node = operator("NativeDropoutBackward", _dropped, (x,))
    made = empty_like(x)
    mask = empty_like(x, BOOL)
    if node is not None:
        checkpoint = x.memory.checkpoint
        node.keep(mask, checkpoint.pack if checkpoint else None)
    return result(node, made)


def _dropped(gradient: Tensor, mask: Tensor, _needs: Needs) -> Tensor:
    return iterated((gradient, mask), gradient.width)
