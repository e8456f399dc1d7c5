"""Views and the layout of results, against examples worked out by hand."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.autograd.elementwise import tensor_iterator
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.strides import (
    broadcast,
    contiguous_strides,
    infer_dense_strides,
    infer_size,
    is_contiguous,
    is_dense,
    view_strides,
)
from zeroplan.autograd.tensor import Tensor, empty, empty_like

VIEWS = [
    # rows of 4: 2 planes of 3 rows are 6 rows, a plane is 12 elements
    ((2, 3, 4), (12, 4, 1), (6, 4), (4, 1)),
    ((2, 3, 4), (12, 4, 1), (2, 12), (12, 1)),
    ((2, 3, 4), (12, 4, 1), (24,), (1,)),
    ((2, 3, 4), (12, 4, 1), (2, 3, 2, 2), (12, 4, 2, 1)),
    # planes and rows swapped: from plane to plane 4, from row to row 12, which is not 2 planes
    ((3, 2, 4), (4, 12, 1), (6, 4), None),
    ((3, 2, 4), (4, 12, 1), (3, 2, 2, 2), (4, 12, 2, 1)),
    # 5 of 8 columns: a row ends before the next begins
    ((3, 5), (8, 1), (15,), None),
    ((3, 5), (8, 1), (3, 5, 1), (8, 1, 1)),
    # a row repeated lies in one place
    ((2, 3), (0, 1), (6,), None),
    ((2, 3), (0, 1), (2, 1, 3), (0, 3, 1)),
    ((2, 3), (0, 0), (6,), (0,)),
    # a dimension of one element is in nobody's way
    ((2, 1, 3), (3, 100, 1), (6,), (1,)),
    ((), (), (1, 1), (1, 1)),
]


@pytest.mark.parametrize(("shape", "strides", "wanted", "found"), VIEWS)
def test_strides_of_a_view(shape, strides, wanted, found):
    assert view_strides(shape, strides, wanted) == found


def places(shape, strides):
    """Where each element lies, in row-major order."""
    return [sum(i * stride for i, stride in zip(index, strides, strict=True)) for index in product(*map(range, shape))]


SIZES = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4).map(tuple)


@st.composite
def laid_out(draw, shape=None):
    """A shape, and strides of a tensor permuted, with gaps, or repeated."""
    shape = shape or draw(SIZES)
    strides = [0] * len(shape)
    step = 1
    for at in draw(st.permutations(range(len(shape)))):
        strides[at] = 0 if draw(st.integers(0, 5)) == 0 else step
        step *= shape[at] + draw(st.sampled_from([0, 0, 0, 1]))
    return shape, tuple(strides)


@given(laid_out(), st.data())
def test_a_view_has_every_element_in_its_place(tensor, data):
    shape, strides = tensor
    factors = data.draw(st.permutations([each for size in shape for each in ((2, 2) if size == 4 else (size,))]))
    wanted, rest = [], list(factors)
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        wanted.append(prod(rest[:count]))
        del rest[:count]
    found = view_strides(shape, strides, tuple(wanted))
    there = places(shape, strides)
    if found is None:  # then none would do: the strides would have to be these
        unit = contiguous_strides(tuple(wanted))
        found = tuple(there[step] - there[0] if size > 1 else 0 for size, step in zip(wanted, unit, strict=True))
        assert places(wanted, found) != there
    else:
        assert places(wanted, found) == there


def test_row_major():
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert contiguous_strides(()) == ()
    assert is_contiguous((2, 1, 4), (4, 99, 1))  # one element: its stride is never used
    assert not is_contiguous((2, 3), (1, 2))


def test_dense():
    assert is_dense((2, 3), (1, 2))
    assert not is_dense((2, 3), (4, 1))  # a gap after each row
    assert not is_dense((2, 3), (0, 1))  # one row twice
    assert infer_dense_strides((2, 3, 4), (12, 1, 3)) == (12, 1, 3)
    assert infer_dense_strides((2, 3), (8, 1)) == (3, 1)
    # torch 2.13: torch.zeros(4, 20, 1, 24).transpose(1, 2).expand(4, 8, 20, 24).half().stride()
    assert infer_dense_strides((4, 8, 20, 24), (480, 0, 24, 1)) == (3840, 480, 24, 1)


def test_broadcast_and_completed():
    assert broadcast(((2, 1, 4), (3, 1), ())) == (2, 3, 4)
    assert infer_size((2, -1, 3), 24) == (2, 4, 3)
    assert infer_size((4, 6), 24) == (4, 6)


def tensor(shape, strides=None):
    return empty(Memory(4), shape, 4, strides)


HEADS = tensor((2, 3, 4, 8), (96, 8, 24, 1))
"""[b, n, s, d] that lies as [b, s, n, d]: 24 from token to token, 8 from head to head."""
LAYOUTS = [
    # contiguous operands make a contiguous result
    ((tensor((2, 3)), tensor((3,))), (2, 3), (3, 1)),
    # alike and dense: as they are
    ((tensor((2, 3), (1, 2)), tensor((2, 3), (1, 2))), (2, 3), (1, 2)),
    # alike with gaps: the same order without them
    ((tensor((2, 3), (8, 1)),), (2, 3), (3, 1)),
    # the first operand that tells two dimensions apart decides
    ((tensor((2, 3), (1, 2)), tensor((2, 3))), (2, 3), (1, 2)),
    ((tensor((2, 3)), tensor((2, 3), (1, 2))), (2, 3), (3, 1)),
    # heads times cosines, which do not tell heads apart: as the heads
    ((HEADS, tensor((1, 1, 4, 8))), (2, 3, 4, 8), (96, 8, 24, 1)),
    # one sequence's mask beside the scores of all heads
    ((tensor((2, 3, 4, 4)), tensor((2, 1, 4, 4), (0, 16, 4, 1))), (2, 3, 4, 4), (48, 16, 4, 1)),
]


@pytest.mark.parametrize(("operands", "shape", "strides"), LAYOUTS)
def test_layout_of_a_result(operands: tuple[Tensor, ...], shape, strides):
    made = tensor_iterator(operands, 4)
    assert (made.shape, made.strides) == (shape, strides)


def test_empty_like_has_no_gaps():
    """An expanded row of 3 becomes 2 rows of its own: 24 bytes."""
    row = tensor((3,)).as_strided((2, 3), (0, 1))
    made = empty_like(row)
    assert made.storage is not None
    assert (made.storage.bytes, is_dense(made.shape, made.strides)) == (24, True)


@settings(deadline=None, max_examples=300)
@given(SIZES.flatmap(lambda shape: st.tuples(laid_out(shape), laid_out(shape))))
def test_layouts_as_torch(tensors):
    """Of the sum of two tensors of one shape, where torch is installed."""
    torch = pytest.importorskip("torch")
    (shape, one), (_shape, other) = tensors
    theirs = torch.empty_strided(shape, one, device="meta") + torch.empty_strided(shape, other, device="meta")
    made = tensor_iterator((tensor(shape, one), tensor(shape, other)), 4)
    told = [at for at, size in enumerate(shape) if size > 1]  # the stride over one element tells nothing
    assert [theirs.stride(at) for at in told] == [made.strides[at] for at in told]
