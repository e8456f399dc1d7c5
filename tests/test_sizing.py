"""Halving finds what looking at every number finds."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zeroplan.largest import LARGEST, _last, sizes
from zeroplan.sizing import _first


@given(st.integers(1, 300), st.data())
def test_the_first_that_is_enough(length, data):
    start = data.draw(st.integers(0, length))
    least = data.draw(st.integers(start, length))
    counts = [10 * index for index in range(length)]
    found = _first(lambda count: count >= 10 * least, counts, start)
    assert found == (least if least < length else None)


@given(st.integers(1, 600), st.data())
def test_the_last_that_holds(end, data):
    low = data.draw(st.integers(0, end))
    true = data.draw(st.integers(low - 1, end - 1)) if low < end else low - 1
    start = data.draw(st.integers(low, max(low, end - 1)))
    assert _last(lambda index: index <= true, low, start, end) == true


def test_sizes_are_one_per_cent_apart():
    found = sizes()
    assert (found[0], found[-1]) == (10**6, LARGEST)
    assert all(1 < larger / smaller <= 1.0101 for smaller, larger in pairwise(found))
