"""Operators that pick elements by number: what a router and the order of tokens by expert are made of.

Backward fills a tensor of the input's size. Watched operator by operator it is filled by making a second one
(torch/csrc/autograd/FunctionsManual.cpp, index_backward and value_selecting_reduction_backward).
"""

from __future__ import annotations

from typing import Any

from zeroplan.autograd.graph import operator, result, save_for_backward
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like

BOOL, LONG = 1, 8


def topk(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest `count` of each row, and where they are, which is kept."""
    shape = (*x.shape[:-1], count)
    node = operator("TopkBackward", _scatter_into_zeros, (x,), (), (x.shape,))
    values, places = empty(x.memory, shape, x.width), empty(x.memory, shape, LONG)
    save_for_backward(node, places)
    return result(node, values), places


def max_of_row(x: Tensor) -> Tensor:
    """The largest of each row, in a row of one; where it is is kept."""
    return topk(x, 1)[0]


def index_rows(x: Tensor, places: Tensor) -> Tensor:
    """Rows of x in the order of `places`, which is kept (x[places])."""
    node = operator("IndexBackward", _scatter_into_zeros, (x,), (places,), (x.shape,))
    return result(node, empty(x.memory, (*places.shape, *x.shape[1:]), x.width))


def index_pairs(x: Tensor, *places: Tensor) -> Tensor:
    """Elements of x by their places along its first dimensions, which are kept (x[rows, columns])."""
    node = operator("IndexBackward", _index_pairs_backward, (x,), places, (x.shape,))
    return result(node, empty(x.memory, (*places[0].shape, *x.shape[len(places) :]), x.width))


def _index_pairs_backward(gradient: Tensor, *rest: Any) -> Tensor:
    *_places, shape, _needs = rest
    zeros = empty(gradient.memory, shape, gradient.width)
    return empty_like(zeros)


def index_select(x: Tensor, at: int, *, on_cpu: bool) -> Tensor:
    """One element along a dimension, copied, picked by a list: the list becomes a tensor on the host, which is kept."""
    place = empty(x.memory, (1,), LONG if on_cpu else 0)
    node = operator("IndexBackward", _scatter_into_zeros, (x,), (place,), (x.shape,))
    return result(node, empty(x.memory, (*x.shape[:at], 1, *x.shape[at + 1 :]), x.width))


def gather(x: Tensor, places: Tensor) -> Tensor:
    """Elements of each row of x, as many as `places` has, which is kept."""
    node = operator("GatherBackward", _scatter_into_zeros, (x,), (places,), (x.shape,))
    return result(node, empty(x.memory, places.shape, x.width))


def _scatter_into_zeros(gradient: Tensor, _places: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    zeros = empty(gradient.memory, shape, gradient.width)
    return empty_like(zeros)


def sort(x: Tensor) -> tuple[Tensor, Tensor]:
    """Integers sorted, and where each was (no gradient)."""
    return empty(x.memory, x.shape, x.width), empty(x.memory, x.shape, LONG)


def masked_fill(x: Tensor) -> Tensor:
    """`x` with a number where a mask says so; the mask, made from another of x's size, is kept."""
    bits = empty(x.memory, x.shape, BOOL)
    mask = empty(x.memory, x.shape, BOOL)
    del bits
    return result(operator("MaskedFillBackward", _masked_fill_backward, (x,), (mask,)), empty_like(x))


def _masked_fill_backward(gradient: Tensor, _mask: Tensor, _needs: Needs) -> Tensor:
    return empty_like(gradient)
