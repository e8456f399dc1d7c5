"""Views: the same bytes in another shape. Backward undoes the view; where it cannot, torch copies, and so does this."""

from __future__ import annotations

from math import prod

from zeroplan.autograd.graph import Needs, operator, result, results, summed_to
from zeroplan.autograd.tensor import Sizes, Tensor, empty


def transposed(x: Tensor, one: int, other: int) -> Tensor:
    """Two dimensions swapped."""
    shape, strides = list(x.shape), list(x.strides)
    shape[one], shape[other] = shape[other], shape[one]
    strides[one], strides[other] = strides[other], strides[one]
    return result(operator("TransposeBackward", _transposed, (x,), (), (one, other)), x.seen_as(tuple(shape), tuple(strides)))


def _transposed(gradient: Tensor, one: int, other: int, _needs: Needs) -> Tensor:
    shape, strides = list(gradient.shape), list(gradient.strides)
    shape[one], shape[other] = shape[other], shape[one]
    strides[one], strides[other] = strides[other], strides[one]
    return gradient.seen_as(tuple(shape), tuple(strides))


def viewed(x: Tensor, shape: Sizes) -> Tensor:
    """x in a shape of as many elements, one of them perhaps -1, without a copy."""
    shape = completed(shape, x.elements)
    strides = view_strides(x.shape, x.strides, shape)
    assert strides is not None, (x.shape, x.strides, shape)
    return result(operator("ViewBackward", _viewed, (x,), (), (x.shape,)), x.seen_as(shape, strides))


def _viewed(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return reshaped_plain(gradient, shape)


def reshaped(x: Tensor, shape: Sizes) -> Tensor:
    """x in another shape: a view where its strides allow, else a copy."""
    shape = completed(shape, x.elements)
    if shape == x.shape:
        return x
    if view_strides(x.shape, x.strides, shape) is not None:
        return viewed(x, shape)
    return viewed(copied(x), shape)


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
    missing = len(shape) - len(x.shape)
    own = [
        0 if size == 1 and full != 1 else stride
        for size, stride, full in zip(x.shape, x.strides, shape[missing:], strict=True)
    ]
    return result(operator("ExpandBackward", _expanded, (x,), (), (x.shape,)), x.seen_as(shape, (0,) * missing + tuple(own)))


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


def view_strides(shape: Sizes, strides: Sizes, wanted: Sizes) -> Sizes | None:
    """Strides of a view in the wanted shape, None where there is none (ATen/TensorUtils.cpp, computeStride)."""
    if not shape:
        return (1,) * len(wanted)
    at = len(wanted) - 1
    found = [0] * len(wanted)
    chunk_stride, elements, covered = strides[-1], 1, 1
    for here in range(len(shape) - 1, -1, -1):
        elements *= shape[here]
        if here == 0 or (shape[here - 1] != 1 and strides[here - 1] != elements * chunk_stride):
            while at >= 0 and (covered < elements or wanted[at] == 1):
                found[at] = covered * chunk_stride
                covered *= wanted[at]
                at -= 1
            if covered != elements:
                return None
            if here > 0:
                chunk_stride, elements, covered = strides[here - 1], 1, 1
    return tuple(found) if at == -1 else None


def completed(shape: Sizes, elements: int) -> Sizes:
    """The shape with the size that -1 stands for."""
    if -1 not in shape:
        return shape
    rest = -prod(shape)
    return tuple(elements // rest if size == -1 else size for size in shape)


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
    """Pairs of neighbours as complex numbers; x is copied where it has gaps."""
    pairs = reshaped(x, (*x.shape[:-1], -1, 2))
    shape, strides = pairs.shape[:-1], tuple(stride // 2 for stride in pairs.strides[:-1])
    made = Tensor(pairs.storage, shape, strides, 2 * x.width, x.memory)
    return result(operator("ViewAsComplexBackward", _as_complex, (pairs,)), made)


def _as_complex(gradient: Tensor, _needs: Needs) -> Tensor:
    whole = gradient if gradient.contiguous else empty(gradient.memory, gradient.shape, gradient.width)
    strides = tuple(2 * stride for stride in whole.strides)
    return Tensor(whole.storage, (*whole.shape, 2), (*strides, 1), whole.width // 2, whole.memory)


def as_real(x: Tensor) -> Tensor:
    """Complex numbers as pairs of neighbours, flat."""
    strides = tuple(2 * stride for stride in x.strides)
    pairs = Tensor(x.storage, (*x.shape, 2), (*strides, 1), x.width // 2, x.memory)
    pairs = result(operator("ViewAsRealBackward", _as_real, (x,)), pairs)
    return reshaped(pairs, (*x.shape[:-1], -1))


def _as_real(gradient: Tensor, _needs: Needs) -> Tensor:
    whole = gradient if gradient.contiguous else empty(gradient.memory, gradient.shape, gradient.width)
    strides = tuple(stride // 2 for stride in whole.strides[:-1])
    return Tensor(whole.storage, whole.shape[:-1], strides, 2 * whole.width, whole.memory)
