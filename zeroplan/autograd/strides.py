"""Strides, in elements, as torch works them out for shapes that are new, dense or seen otherwise."""

from __future__ import annotations

from functools import lru_cache
from math import prod

Sizes = tuple[int, ...]
SEEN = 1024
"""Shapes that are remembered: a run has few, and asks of each many times."""


def contiguous_strides(shape: Sizes) -> Sizes:
    """Strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(strides[::-1])


@lru_cache(maxsize=SEEN)
def is_contiguous(shape: Sizes, strides: Sizes) -> bool:
    """Whether the elements lie in row-major order without gaps; a stride over one element does not count."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


@lru_cache(maxsize=SEEN)
def is_dense(shape: Sizes, strides: Sizes) -> bool:
    """Whether the elements lie side by side in some order, none twice (is_non_overlapping_and_dense)."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def infer_dense_strides(shape: Sizes, *operands: Sizes) -> Sizes:
    """Strides of `shape` without gaps, its dimensions from the smallest stride of the operands to the largest.

    As TensorIterator.cpp orders them for several, and infer_dense_strides (ExpandUtils.cpp) for one: where a stride is
    0 nothing tells, and dimensions stay as they are.
    """
    rank = len(shape)
    order = list(range(rank - 1, -1, -1))
    for at in range(1, rank):
        here = at
        for before in range(at - 1, -1, -1):
            verdict = _compared(operands, shape, order[before], order[here])
            if verdict > 0:
                order[before], order[here] = order[here], order[before]
                here = before
            elif verdict < 0:
                break
    result, step = [0] * rank, 1
    for dimension in order:
        result[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(result)


def _compared(strides: tuple[Sizes, ...], shape: Sizes, one: int, other: int) -> int:
    """1 where `one` lies farther apart than `other`, -1 where closer, 0 where nothing tells."""
    for each in strides:
        if each[one] and each[other]:
            if each[one] != each[other]:
                return 1 if each[one] > each[other] else -1
            if shape[one] > shape[other]:
                return 1
    return 0


def view_strides(shape: Sizes, strides: Sizes, wanted: Sizes) -> Sizes | None:
    """Strides of a view in the wanted shape, None where there is none (ATen/TensorUtils.cpp, computeStride)."""
    if not shape:
        return (1,) * len(wanted)
    at = len(wanted) - 1
    result = [0] * len(wanted)
    chunk_stride, elements, covered = strides[-1], 1, 1
    for here in range(len(shape) - 1, -1, -1):
        elements *= shape[here]
        if here == 0 or (shape[here - 1] != 1 and strides[here - 1] != elements * chunk_stride):
            while at >= 0 and (covered < elements or wanted[at] == 1):
                result[at] = covered * chunk_stride
                covered *= wanted[at]
                at -= 1
            if covered != elements:
                return None
            if here > 0:
                chunk_stride, elements, covered = strides[here - 1], 1, 1
    return tuple(result) if at == -1 else None


def broadcast(shapes: tuple[Sizes, ...]) -> Sizes:
    """The shape that all are broadcast to."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_wider(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True))


def _wider(sizes: Sizes) -> int:
    """The largest; of several 1s the one that has a name (a `Polynomial`)."""
    most = max(sizes)
    return most if most != 1 else next((size for size in sizes if type(size) is not int), most)


def broadcast_strides(shape: Sizes, strides: Sizes, wanted: Sizes) -> Sizes:
    """Strides over the shape that `shape` is broadcast to, 0 where its one element is repeated."""
    missing = len(wanted) - len(shape)
    own = [
        0 if size == 1 and full != 1 else stride
        for size, stride, full in zip(shape, strides, wanted[missing:], strict=True)
    ]
    return (0,) * missing + tuple(own)


def infer_size(shape: Sizes, elements: int) -> Sizes:
    """The shape with the size that -1 stands for."""
    if -1 not in shape:
        return shape
    rest = -prod(shape)
    return tuple(elements // rest if size == -1 else size for size in shape)
