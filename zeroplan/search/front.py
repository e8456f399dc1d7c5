"""The front of time and memory: strategies of which none is both faster and leaner, from the fastest to the leanest.

The search for the fastest goes on where it stopped, with fewer bytes to look for: what it has left out needs more than
that all the same, and what waits is still as fast at most.
"""

from __future__ import annotations

from zeroplan.costs.ledger import uncollected
from zeroplan.record import NamedTuple
from zeroplan.search import best_first, leanest_first
from zeroplan.search.bounds import Bounds
from zeroplan.search.candidate import Candidate
from zeroplan.search.space import Space
from zeroplan.search.work import Work

AS_FAST = 1e-9
"""Share of a step by which two steps that take as long may differ."""


class Front(NamedTuple):
    """Each the fastest that needs no more than it does; of equally fast ones the leanest, then the simplest."""

    rows: tuple[Candidate, ...]
    """From the fastest to the leanest; empty when nothing fits."""
    stood_for: int
    """Strategies of the space; how many of them were timed, and how many counted to the byte."""
    timed: int
    counted: int
    bound: float | None = None
    """After its limit of work: no strategy that needs less than the last row but one takes fewer seconds; None: all are
    proven."""


def front(
    space: Space, reserve: float | None, apart: float, first: Candidate | None = None, *, work: Work | None = None
) -> Front:  # fmt: skip
    """Each row is the fastest strategy that needs less than the row before, by the share `apart` of it at least.

    The last is the leanest of all, however near to the one before. `apart` of 0: every strategy of the front. `first`:
    the first row, the fastest of a space that has this one in it; None: to be found. `work`: what may be done, after
    which the leanest follows the rows so far; None: as much as any search.
    """
    bounds, rows = Bounds(reserve, work), [first] if first else []
    search, by_bytes, stopped = best_first.Search(space, bounds), leanest_first.Search(space, bounds), False
    with uncollected():
        fewest = by_bytes.run()
        search.start(space.roots() if fewest is not None else ())
        while fewest is not None and (not rows or rows[-1].fit.gpu.needed > fewest):
            if rows:
                needed = rows[-1].fit.gpu.needed
                bounds.most = max(fewest, min(needed - 1, int(needed * (1 - apart))))
            row = _leanest_of_the_fastest(search)
            assert row or bounds.work.is_over  # the leanest is among what waits
            stopped |= row is None
            if last := row or by_bytes.best:
                _append(rows, last)
    bound = (search.bound or 0.0) if stopped or by_bytes.bound is not None else None
    return Front(tuple(rows), space.size, search.timed, len(bounds.counted), bound)


def _append(rows: list[Candidate], row: Candidate) -> None:
    """Add a row, and leave out those before it that are slower: a first one that was not proven may be."""
    while rows and rows[-1].time.total >= row.time.total:
        rows.pop()
    rows.append(row)


def _leanest_of_the_fastest(search: best_first.Search) -> Candidate | None:
    best = search.next()
    within = best.time.total * (1 + AS_FAST) if best else 0.0
    while best:
        search.bounds.most = best.fit.gpu.needed - 1
        leaner = search.next(within)
        if leaner is None:
            return best
        best = leaner
    return None
