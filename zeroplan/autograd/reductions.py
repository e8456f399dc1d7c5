"""Operators over one dimension: sums, means, softmax, joining and padding."""

from __future__ import annotations

from zeroplan.autograd.elementwise import tensor_iterator, to
from zeroplan.autograd.graph import operator, result
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like

FLOAT = 4


def mean(x: Tensor) -> Tensor:
    """The mean over the last dimension, which stays with one element."""
    node = operator("MeanBackward", _mean_backward, (x,), (), (x.shape,))
    return result(node, empty(x.memory, (*x.shape[:-1], 1), x.width))


def _mean_backward(gradient: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    """gradient.expand(shape) / n"""
    repeated = gradient.as_strided(shape, (*gradient.strides[:-1], 0))
    return empty(repeated.memory, shape, repeated.width)


def softmax(x: Tensor, width: int, *, fused: bool = False) -> Tensor:
    """Softmax over the last dimension, computed and kept in `width`: the input is cast to it first, unless `fused`."""
    if fused and x.width != width:
        return result(
            operator("SoftmaxBackward", _half_softmax_backward, (x,), (), (x.width,)), empty_like(x, width), keeps=True
        )
    wide = to(x, width)
    node = operator("SoftmaxBackward", _softmax_backward, (wide,))
    return result(node, empty_like(wide), keeps=True)


def _softmax_backward(gradient: Tensor, out: Tensor, _needs: Needs) -> Tensor:
    return empty(gradient.memory, out.shape, out.width)


def _half_softmax_backward(gradient: Tensor, out: Tensor, width: int, _needs: Needs) -> Tensor:
    return empty(gradient.memory, out.shape, width)


def cat(parts: tuple[Tensor, ...], at: int) -> Tensor:
    """Tensors one after another along a dimension (torch.cat); gradients are views of the whole's."""
    first = parts[0]
    at %= len(first.shape)
    sizes = tuple(part.shape[at] for part in parts)
    shape = (*first.shape[:at], sum(sizes), *first.shape[at + 1 :])
    node = operator("CatBackward", _cat_backward, parts, (), (sizes, at))
    return result(node, empty(first.memory, shape, max(part.width for part in parts)))


def _cat_backward(gradient: Tensor, sizes: Sizes, at: int, needs: Needs) -> tuple[Tensor | None, ...]:
    return tuple(
        gradient.as_strided((*gradient.shape[:at], size, *gradient.shape[at + 1 :]), gradient.strides) if need else None
        for size, need in zip(sizes, needs, strict=True)
    )


def norm_of_rows(x: Tensor) -> Tensor:
    """The length of each row of a matrix that needs no gradient (torch.linalg.norm)."""
    return empty(x.memory, x.shape[:1], x.width)


def sum_over(x: Tensor, at: int, *, stays: bool = False) -> Tensor:
    """The sum over one dimension, which goes or stays with one element."""
    at %= len(x.shape)
    shape = (*x.shape[:at], *((1,) if stays else ()), *x.shape[at + 1 :])
    width = FLOAT if x.memory.autocast else x.width
    return result(operator("SumBackward", _sum_backward, (x,), (), (x.shape, at, stays)), empty(x.memory, shape, width))


def _sum_backward(gradient: Tensor, shape: Sizes, at: int, stays: bool, _needs: Needs) -> Tensor:
    """The gradient repeated, without a copy."""
    rest = gradient.strides[at + 1 :] if stays else gradient.strides[at:]
    return gradient.as_strided(shape, (*gradient.strides[:at], 0, *rest))


def log_softmax(x: Tensor) -> Tensor:
    """Log-probabilities over the last dimension."""
    return result(operator("LogSoftmaxBackward", _log_softmax_backward, (x,)), empty_like(x), keeps=True)


def _log_softmax_backward(gradient: Tensor, out: Tensor, _needs: Needs) -> Tensor:
    return tensor_iterator((gradient, out), out.width)
