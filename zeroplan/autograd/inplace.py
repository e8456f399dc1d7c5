"""Operators that write their result over their input: the same storage, and a copy of the old numbers if kept."""

from __future__ import annotations

from zeroplan.autograd.elementwise import mul_by_saved, pass_gradient
from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.iterator import tensor_iterator
from zeroplan.autograd.tensor import Tensor, empty_like


def clamp_(x: Tensor) -> Tensor:
    """`x.clamp_()`: a copy of x as it was is kept."""
    before = tensor_iterator((x,), x.width) if x.node else None
    return result(operator("ClampBackward", mul_by_saved, (x,), (before,)), x.detach())


def add_(x: Tensor, y: Tensor) -> Tensor:
    """`x += y`: nothing is made, nothing kept."""
    return result(operator("AddBackward", pass_gradient, (x, y)), x.detach())


def div_(x: Tensor, y: Tensor) -> Tensor:
    """`x /= y`: a copy of x as it was is kept, and y."""
    before = empty_like(x) if y.node else None
    return result(operator("DivBackward", _div_backward, (x, y), (before, y)), x.detach())


def _div_backward(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """`-gradient * ((x / y) / y)`, then `gradient / y`."""

    def of_divisor() -> Tensor:
        once = tensor_iterator((x, y), gradient.width)
        twice = tensor_iterator((once, y), gradient.width)
        return tensor_iterator((tensor_iterator((gradient,), gradient.width), twice), gradient.width)

    of_y = of_divisor() if needs[1] else None
    of_x = tensor_iterator((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y
