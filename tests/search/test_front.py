"""The front of time and memory: from the fastest to the leanest, no row beaten by another."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.search.spaces import drawn
from zeroplan.search import best, front
from zeroplan.specs.objective import LEAST_MEMORY


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_no_row_is_beaten(seed):
    rows = [(row.time.total, row.fit.gpu.needed) for row in front(drawn(seed), 0.05, 0.0).rows]
    assert rows == sorted(rows)
    assert [needed for _seconds, needed in rows] == sorted({needed for _seconds, needed in rows}, reverse=True)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_it_goes_from_the_fastest_to_the_leanest(seed):
    free = drawn(seed)
    rows = front(free, 0.05, 0.05).rows
    first, last = best(free, 0.05).best, best(free, 0.05, LEAST_MEMORY).best
    assert bool(rows) == bool(first) == bool(last)
    if rows:
        assert all(row.fit.accepted for row in rows)
        assert rows[0].time.total <= first.time.total
        assert rows[-1].fit.gpu.needed <= last.fit.gpu.needed


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_rows_are_apart(seed):
    """By the share that is asked for; the last, the leanest of all, may be nearer."""
    needed = [row.fit.gpu.needed for row in front(drawn(seed), 0.05, 0.2).rows]
    assert all(after <= before * 0.8 for before, after in pairwise(needed[:-1]))
