"""The front of time and memory is what enumerating the whole space gives."""

from __future__ import annotations

import pytest

from tests.search.test_best_first import enumerated
from tests.search.test_least_memory import limited
from zeroplan.search import fastest
from zeroplan.search.front import AS_FAST, front
from zeroplan.search.leanest_first import least_memory


def by_hand(found, reserve, apart):
    """Row after row out of all that fit: the fastest that needs little enough, of equally fast ones the leanest."""
    every = [(one.time.total, one.fit.gpu.needed) for one in enumerated(found, reserve)]
    leanest, rows = min((needed for _seconds, needed in every), default=0), []
    while every:
        soonest = min(every)[0]
        rows.append(min((row for row in every if row[0] <= soonest * (1 + AS_FAST)), key=lambda row: row[1]))
        needed = rows[-1][1]
        limit = max(leanest, min(needed - 1, int(needed * (1 - apart))))
        every = [row for row in every if row[1] <= limit and needed > leanest]
    return rows


def shown(rows):
    return [(row.time.total, row.fit.gpu.needed) for row in rows]


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_as_enumerating_the_space_gives(seed):
    found = limited(seed)
    for apart in (0.0, 0.01, 0.2):
        rows, expected = shown(front(found, 0.05, apart).rows), by_hand(found, 0.05, apart)
        assert [needed for _seconds, needed in rows] == [needed for _seconds, needed in expected]
        assert [seconds for seconds, _needed in rows] == pytest.approx([seconds for seconds, _needed in expected])


@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_no_row_is_dominated_and_every_other_strategy_is(seed):
    """With all rows: whatever fits is no faster than the row of as many bytes, or the next one that needs fewer."""
    found = limited(seed)
    rows = shown(front(found, 0.05, 0.0).rows)
    assert rows == sorted(rows)
    assert [needed for _seconds, needed in rows] == sorted({needed for _seconds, needed in rows}, reverse=True)
    for one in enumerated(found, 0.05):
        seconds, needed = one.time.total, one.fit.gpu.needed
        assert any(row[0] <= seconds * (1 + 2 * AS_FAST) and row[1] <= needed for row in rows)


@pytest.mark.parametrize("seed", range(0, 40, 14))
def test_it_goes_from_the_fastest_to_the_leanest(seed):
    found = limited(seed)
    rows = front(found, 0.05, 0.05).rows
    first, last = fastest(found, 0.05).best, least_memory(found, 0.05).best
    assert bool(rows) == bool(first) == bool(last)
    if rows:
        assert rows[0].time.total == pytest.approx(first.time.total)
        assert rows[0].fit.gpu.needed <= first.fit.gpu.needed
        assert (rows[-1].fit.gpu.needed, rows[-1].time.total) == (last.fit.gpu.needed, last.time.total)
