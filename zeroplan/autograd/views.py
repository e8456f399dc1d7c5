"""Views: the same bytes in another shape. Backward undoes the view; where it cannot, torch copies, and so does this."""

from __future__ import annotations

from zeroplan.autograd.graph import operator, result, results, sum_to
from zeroplan.autograd.strides import Sizes, broadcast_strides, infer_size, view_strides
from zeroplan.autograd.tensor import Needs, Tensor, empty


def transpose(x: Tensor, one: int, other: int) -> Tensor:
    """Two dimensions swapped."""
    return result(
        operator("TransposeBackward", _transpose_backward, (x,), (), (one, other)), transpose_plain(x, one, other)
    )


def _transpose_backward(gradient: Tensor, one: int, other: int, _needs: Needs) -> Tensor:
    return transpose_plain(gradient, one, other)


def transpose_plain(x: Tensor, one: int, other: int) -> Tensor:
    """`transpose` without a graph."""
    shape, strides = list(x.shape), list(x.strides)
    shape[one], shape[other] = shape[other], shape[one]
    strides[one], strides[other] = strides[other], strides[one]
    return x.as_strided(tuple(shape), tuple(strides))


def view(x: Tensor, shape: Sizes) -> Tensor:
    """`x` in a shape of as many elements, one of them perhaps -1, without a copy."""
    shape = infer_size(shape, x.elements)
    strides = view_strides(x.shape, x.strides, shape)
    assert strides is not None, (x.shape, x.strides, shape)
    return result(operator("ViewBackward", _view_backward, (x,), (), (x.shape,)), x.as_strided(shape, strides))


def _view_backward(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return reshape_plain(gradient, shape)


def reshape(x: Tensor, shape: Sizes) -> Tensor:
    """`x` in another shape: a view where its strides allow, else a copy."""
    shape = infer_size(shape, x.elements)
    if shape == x.shape:
        return x
    if view_strides(x.shape, x.strides, shape) is not None:
        return view(x, shape)
    return view(clone(x), shape)


def contiguous(x: Tensor) -> Tensor:
    """`x` itself, or a copy in row-major order."""
    return x if x.is_contiguous else clone(x)


def clone(x: Tensor) -> Tensor:
    """A contiguous copy."""
    return result(operator("CloneBackward", _same, (x,)), empty(x.memory, x.shape, x.width))


def _same(gradient: Tensor, _needs: Needs) -> Tensor:
    return gradient


def reshape_plain(x: Tensor, shape: Sizes) -> Tensor:
    """`reshape` without a graph."""
    strides = view_strides(x.shape, x.strides, shape)
    return empty(x.memory, shape, x.width) if strides is None else x.as_strided(shape, strides)


def expand(x: Tensor, shape: Sizes) -> Tensor:
    """Dimensions of one element repeated without a copy."""
    if shape == x.shape:
        return x
    out = x.as_strided(shape, broadcast_strides(x.shape, x.strides, shape))
    return result(operator("ExpandBackward", _expand_backward, (x,), (), (x.shape,)), out)


def _expand_backward(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return gradient if gradient.shape == shape else sum_to(gradient, shape)


def unsqueeze(x: Tensor, at: int) -> Tensor:
    """A dimension of one element put in at `at`."""
    stride = x.strides[at] * x.shape[at] if at < len(x.shape) else 1
    shape = (*x.shape[:at], 1, *x.shape[at:])
    out = x.as_strided(shape, (*x.strides[:at], stride, *x.strides[at:]))
    return result(operator("UnsqueezeBackward", _unsqueeze_backward, (x,), (), (at,)), out)


def _unsqueeze_backward(gradient: Tensor, at: int, _needs: Needs) -> Tensor:
    return gradient.as_strided(
        (*gradient.shape[:at], *gradient.shape[at + 1 :]), (*gradient.strides[:at], *gradient.strides[at + 1 :])
    )


def narrow(x: Tensor, at: int, size: int, start: int = 0) -> Tensor:
    """`size` elements along dimension `at` (negative: from the end). Its gradient is as large as x."""
    at %= len(x.shape)
    if size == x.shape[at] and not start:
        return x
    shape = (*x.shape[:at], size, *x.shape[at + 1 :])
    return result(operator("SliceBackward", _slice_backward, (x,), (), (x.shape,)), x.as_strided(shape, x.strides))


def every_second(x: Tensor, start: int) -> Tensor:
    """Every second element of the last dimension. Its gradient is as large as x."""
    shape, strides = (*x.shape[:-1], (x.shape[-1] - start + 1) // 2), (*x.strides[:-1], 2 * x.strides[-1])
    return result(operator("SliceBackward", _slice_backward, (x,), (), (x.shape,)), x.as_strided(shape, strides))


def _slice_backward(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return empty(gradient.memory, shape, gradient.width)


def select(x: Tensor, at: int) -> Tensor:
    """One element along a dimension, which goes. Its gradient is as large as x."""
    shape, strides = (*x.shape[:at], *x.shape[at + 1 :]), (*x.strides[:at], *x.strides[at + 1 :])
    return result(operator("SelectBackward", _slice_backward, (x,), (), (x.shape,)), x.as_strided(shape, strides))


def chunk(x: Tensor, parts: int, at: int) -> tuple[Tensor, ...]:
    """Equal parts along a dimension. Their gradients are joined into one of x's shape."""
    at %= len(x.shape)
    size = x.shape[at] // parts
    return split(x, (size,) * parts, at)


def split(x: Tensor, sizes: Sizes, at: int) -> tuple[Tensor, ...]:
    """Parts of these sizes along a dimension."""
    at %= len(x.shape)
    shapes = [(*x.shape[:at], size, *x.shape[at + 1 :]) for size in sizes]
    node = operator("SplitBackward", _split_backward, (x,), (), (x.shape,))
    return results(node, tuple(x.as_strided(shape, x.strides) for shape in shapes))


def _split_backward(gradients: list[Tensor | None] | Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    known = gradients if isinstance(gradients, Tensor) else next(each for each in gradients if each is not None)
    return empty(known.memory, shape, known.width)


def view_as_complex(x: Tensor) -> Tensor:
    """Pairs of neighbours as complex numbers, [..., 2d] as [..., d]; x is copied where it has gaps."""
    pairs = reshape(x, (*x.shape[:-1], -1, 2))
    return result(operator("ViewAsComplexBackward", _view_as_complex_backward, (pairs,)), merged(pairs))


def _view_as_complex_backward(gradient: Tensor, _needs: Needs) -> Tensor:
    return parted(gradient if gradient.is_contiguous else empty(gradient.memory, gradient.shape, gradient.width))


def view_as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs of neighbours, [..., d] as [..., 2d]."""
    pairs = result(operator("ViewAsRealBackward", _view_as_real_backward, (x,)), parted(x))
    return reshape(pairs, (*x.shape[:-1], -1))


def _view_as_real_backward(gradient: Tensor, _needs: Needs) -> Tensor:
    return merged(gradient if gradient.is_contiguous else empty(gradient.memory, gradient.shape, gradient.width))


def merged(pairs: Tensor) -> Tensor:
    """[..., 2] as one number twice as wide."""
    return pairs.as_strided(pairs.shape[:-1], tuple(stride // 2 for stride in pairs.strides[:-1]), 2 * pairs.width)


def parted(x: Tensor) -> Tensor:
    """Each number as two half as wide, [..., 2]."""
    return x.as_strided((*x.shape, 2), (*(2 * stride for stride in x.strides), 1), x.width // 2)
