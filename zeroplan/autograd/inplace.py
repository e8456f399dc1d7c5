"""Operators that write their result over their input: the same storage, and a copy of the old numbers if kept."""

from __future__ import annotations

from zeroplan.autograd.elementwise import passed_on, times_kept
from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.iterator import iterated
from zeroplan.autograd.tensor import Tensor, empty_like


def clipped_in_place(x: Tensor) -> Tensor:
    """`x.clamp_()`: a copy of x as it was is kept."""
    before = iterated((x,), x.width) if x.node else None
    return result(operator("ClampBackward", times_kept, (x,), (before,)), x.detached())


def added_in_place(x: Tensor, y: Tensor) -> Tensor:
    """`x += y`: nothing is made, nothing kept."""
    return result(operator("AddBackward", passed_on, (x, y)), x.detached())


def divided_in_place(x: Tensor, y: Tensor) -> Tensor:
    """`x /= y`: a copy of x as it was is kept, and y."""
    before = empty_like(x) if y.node else None
    return result(operator("DivBackward", _divided, (x, y), (before, y)), x.detached())


def _divided(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """`-gradient * ((x / y) / y)`, then `gradient / y`."""

    def of_divisor() -> Tensor:
        once = iterated((x, y), gradient.width)
        twice = iterated((once, y), gradient.width)
        return iterated((iterated((gradient,), gradient.width), twice), gradient.width)

    of_y = of_divisor() if needs[1] else None
    of_x = iterated((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y
