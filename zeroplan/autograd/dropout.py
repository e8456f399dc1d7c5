"""Dropout: the mask is what it keeps, in the dtype of its input on the CPU, as one byte an element on CUDA."""

from __future__ import annotations

from zeroplan.autograd.elementwise import mul, mul_by_saved
from zeroplan.autograd.graph import operator, result, save_for_backward
from zeroplan.autograd.tensor import Tensor, empty_like

BOOL = 1


def apply_dropout(x: Tensor, probability: float | None, *, on_cpu: bool) -> Tensor:
    """`x` with some elements 0 and the others scaled; x itself without a probability (ATen/native/Dropout.cpp)."""
    if not probability:
        return x
    if on_cpu:
        return mul(x, empty_like(x))
    node = operator("NativeDropoutBackward", mul_by_saved, (x,))
    out = empty_like(x)
    mask = empty_like(x, BOOL)
    save_for_backward(node, mask)
    return result(node, out)
