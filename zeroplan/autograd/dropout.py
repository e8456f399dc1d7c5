"""Dropout: the mask is what it keeps, in the dtype of its input on the CPU, as one byte an element on CUDA."""

from __future__ import annotations

from zeroplan.autograd.elementwise import multiply, times_kept
from zeroplan.autograd.graph import keep, operator, result
from zeroplan.autograd.tensor import Tensor, empty_like

BOOL = 1


def dropped(x: Tensor, probability: float | None, *, on_cpu: bool) -> Tensor:
    """`x` with some elements 0 and the others scaled; x itself without a probability (ATen/native/Dropout.cpp)."""
    if not probability:
        return x
    if on_cpu:
        return multiply(x, empty_like(x))
    node = operator("NativeDropoutBackward", times_kept, (x,))
    made = empty_like(x)
    mask = empty_like(x, BOOL)
    keep(node, mask)
    return result(node, made)
