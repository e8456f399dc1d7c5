"""Copies into a part of a tensor that is there already."""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Tensor, empty, empty_like


def copied_into(base: Tensor, part: Tensor) -> Tensor:
    """`part` written into a slice of `base`, whose storage it keeps (torch's CopySlices)."""
    node = operator("CopySlices", _copied_into, (base, part), (), (base.shape, base.strides, part.shape))
    return result(node, base.detached())


def _copied_into(
    gradient: Tensor, shape: Sizes, strides: Sizes, part: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The base's gradient is copied, the part's cut out of it and replaced by zeros."""
    whole = empty(gradient.memory, shape, gradient.width, strides)
    cut = empty(gradient.memory, part, gradient.width)
    zeros = empty_like(cut) if needs[0] else None
    del zeros
    return (whole if needs[0] else None), cut
