"""Views: the same bytes in another shape. Backward undoes the view; where it cannot, torch copies, and so does this."""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, result, results, summed_to
from zeroplan.autograd.strides import Sizes, broadcast_strides, completed, view_strides
from zeroplan.autograd.tensor import Tensor, empty


def transposed(x: Tensor, one: int, other: int) -> Tensor:
    """Two dimensions swapped."""
    return result(operator("TransposeBackward", _transposed, (x,), (), (one, other)), swapped(x, one, other))


def _transposed(gradient: Tensor, one: int, other: int, _needs: Needs) -> Tensor:
    return swapped(gradient, one, other)


def swapped(x: Tensor, one: int, other: int) -> Tensor:
    """`transposed` without a graph."""
    shape, strides = list(x.shape), list(x.strides)
    shape[one], shape[other] = shape[other], shape[one]
    strides[one], strides[other] = strides[other], strides[one]
    return x.seen_as(tuple(shape), tuple(strides))


def viewed(x: Tensor, shape: Sizes) -> Tensor:
    """`x` in a shape of as many elements, one of them perhaps -1, without a copy."""
    shape = completed(shape, x.elements)
    strides = view_strides(x.shape, x.strides, shape)
    assert strides is not None, (x.shape, x.strides, shape)
    return result(operator("ViewBackward", _viewed, (x,), (), (x.shape,)), x.seen_as(shape, strides))


def _viewed(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return reshaped_plain(gradient, shape)


def reshaped(x: Tensor, shape: Sizes) -> Tensor:
    """`x` in another shape: a view where its strides allow, else a copy."""
    shape = completed(shape, x.elements)
    if shape == x.shape:
        return x
    if view_strides(x.shape, x.strides, shape) is not None:
        return viewed(x, shape)
    return viewed(copied(x), shape)


def contiguous(x: Tensor) -> Tensor:
    """`x` itself, or a copy in row-major order."""
    return x if x.contiguous else copied(x)


def copied(x: Tensor) -> Tensor:
    """A contiguous copy."""
    return result(operator("CloneBackward", _same, (x,)), empty(x.memory, x.shape, x.width))


def _same(gradient: Tensor, _needs: Needs) -> Tensor:
    return gradient


def reshaped_plain(x: Tensor, shape: Sizes) -> Tensor:
    """`reshaped` without a graph."""
    strides = view_strides(x.shape, x.strides, shape)
    return empty(x.memory, shape, x.width) if strides is None else x.seen_as(shape, strides)


def expanded(x: Tensor, shape: Sizes) -> Tensor:
    """Dimensions of one element repeated without a copy."""
    if shape == x.shape:
        return x
    made = x.seen_as(shape, broadcast_strides(x.shape, x.strides, shape))
    return result(operator("ExpandBackward", _expanded, (x,), (), (x.shape,)), made)


def _expanded(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return gradient if gradient.shape == shape else summed_to(gradient, shape)


def unsqueezed(x: Tensor, at: int) -> Tensor:
    """A dimension of one element put in at `at`."""
    stride = x.strides[at] * x.shape[at] if at < len(x.shape) else 1
    shape = (*x.shape[:at], 1, *x.shape[at:])
    made = x.seen_as(shape, (*x.strides[:at], stride, *x.strides[at:]))
    return result(operator("UnsqueezeBackward", _unsqueezed, (x,), (), (at,)), made)


def _unsqueezed(gradient: Tensor, at: int, _needs: Needs) -> Tensor:
    return gradient.seen_as(
        (*gradient.shape[:at], *gradient.shape[at + 1 :]), (*gradient.strides[:at], *gradient.strides[at + 1 :])
    )


def sliced(x: Tensor, at: int, size: int, start: int = 0) -> Tensor:
    """`size` elements along dimension `at` (negative: from the end). Its gradient is as large as x."""
    at %= len(x.shape)
    if size == x.shape[at] and not start:
        return x
    shape = (*x.shape[:at], size, *x.shape[at + 1 :])
    return result(operator("SliceBackward", _sliced, (x,), (), (x.shape,)), x.seen_as(shape, x.strides))


def every_second(x: Tensor, start: int) -> Tensor:
    """Every second element of the last dimension. Its gradient is as large as x."""
    shape, strides = (*x.shape[:-1], (x.shape[-1] - start + 1) // 2), (*x.strides[:-1], 2 * x.strides[-1])
    return result(operator("SliceBackward", _sliced, (x,), (), (x.shape,)), x.seen_as(shape, strides))


def _sliced(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return empty(gradient.memory, shape, gradient.width)


def selected(x: Tensor, at: int) -> Tensor:
    """One element along a dimension, which goes. Its gradient is as large as x."""
    shape, strides = (*x.shape[:at], *x.shape[at + 1 :]), (*x.strides[:at], *x.strides[at + 1 :])
    return result(operator("SelectBackward", _sliced, (x,), (), (x.shape,)), x.seen_as(shape, strides))


def chunked(x: Tensor, parts: int, at: int) -> tuple[Tensor, ...]:
    """Equal parts along a dimension. Their gradients are joined into one of x's shape."""
    at %= len(x.shape)
    size = x.shape[at] // parts
    return split(x, (size,) * parts, at)


def split(x: Tensor, sizes: Sizes, at: int) -> tuple[Tensor, ...]:
    """Parts of these sizes along a dimension."""
    at %= len(x.shape)
    shapes = [(*x.shape[:at], size, *x.shape[at + 1 :]) for size in sizes]
    node = operator("SplitBackward", _split, (x,), (), (x.shape,))
    return results(node, tuple(x.seen_as(shape, x.strides) for shape in shapes))


def _split(gradients: list[Tensor | None] | Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    known = gradients if isinstance(gradients, Tensor) else next(each for each in gradients if each is not None)
    return empty(known.memory, shape, known.width)


def as_complex(x: Tensor) -> Tensor:
    """Pairs of neighbours as complex numbers, [..., 2d] as [..., d]; x is copied where it has gaps."""
    pairs = reshaped(x, (*x.shape[:-1], -1, 2))
    return result(operator("ViewAsComplexBackward", _as_complex, (pairs,)), merged(pairs))


def _as_complex(gradient: Tensor, _needs: Needs) -> Tensor:
    return parted(gradient if gradient.contiguous else empty(gradient.memory, gradient.shape, gradient.width))


def as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs of neighbours, [..., d] as [..., 2d]."""
    pairs = result(operator("ViewAsRealBackward", _as_real, (x,)), parted(x))
    return reshaped(pairs, (*x.shape[:-1], -1))


def _as_real(gradient: Tensor, _needs: Needs) -> Tensor:
    return merged(gradient if gradient.contiguous else empty(gradient.memory, gradient.shape, gradient.width))


def merged(pairs: Tensor) -> Tensor:
    """[..., 2] as one number twice as wide."""
    return pairs.seen_as(pairs.shape[:-1], tuple(stride // 2 for stride in pairs.strides[:-1]), 2 * pairs.width)


def parted(x: Tensor) -> Tensor:
    """Each number as two half as wide, [..., 2]."""
    return x.seen_as((*x.shape, 2), (*(2 * stride for stride in x.strides), 1), x.width // 2)
