"""Copies into a part of a tensor that is there already."""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Tensor, empty, empty_like


def copy_into_slice(base: Tensor, part: Tensor) -> Tensor:
    """`part` written into a slice of `base`, whose storage it keeps (torch's CopySlices)."""
    node = operator("CopySlices", _copy_slices_backward, (base, part), (), (base.shape, base.strides, part.shape))
    return result(node, base.detach())


def _copy_slices_backward(
    gradient: Tensor, shape: Sizes, strides: Sizes, part: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The base's gradient is copied, the part's cut out of it and replaced by zeros."""
    whole = empty(gradient.memory, shape, gradient.width, strides)
    cut = empty(gradient.memory, part, gradient.width)
    zeros = empty_like(cut) if needs[0] else None
    del zeros
    return (whole if needs[0] else None), cut


def constant_pad(x: Tensor, size: int) -> Tensor:
    """A copy whose last dimension is filled up to `size` (constant_pad_nd)."""
    node = operator("ConstantPadNdBackward", _constant_pad_backward, (x,), (), (x.shape[-1],))
    return result(node, empty(x.memory, (*x.shape[:-1], size), x.width))


def _constant_pad_backward(gradient: Tensor, size: int, _needs: Needs) -> Tensor:
    """What belongs to the input, copied out."""
    return empty_like(gradient.as_strided((*gradient.shape[:-1], size), gradient.strides))
