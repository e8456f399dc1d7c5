"""The front of time and memory: strategies of which none is both faster and leaner, from the fastest to the leanest.

Of each configuration a few strategies are looked at, with default numbers and with those that hold least, but for those
whose bounds say that another is both faster and leaner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.search.candidate import Candidate, rounded
from zeroplan.search.room import has_room, least_needed
from zeroplan.search.search import Search
from zeroplan.search.space import Configuration, Space
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY


class Front(NamedTuple):
    """Each the fastest of those evaluated that need no more than it does."""

    rows: tuple[Candidate, ...]
    """From the fastest to the leanest; empty when nothing fits."""
    strategies: int
    """The space's; its configurations, those without room, and the strategies that were counted and timed."""
    configurations: int
    without_room: int
    evaluated: int


def front(space: Space, reserve: float | None, apart: float) -> Front:
    """The fastest of all, then each row the fastest that needs less than the row before by the share `apart` of it.

    The last is the leanest of all, however near to the one before. `apart` of 0: every strategy of the front.
    """
    search, lean = (Search(space, reserve, objective) for objective in (FASTEST, LEAST_MEMORY))
    ends = [entry.candidate for entry in (search.run(), lean.run()) if entry]
    every = list(space.configurations())
    with_room = [one for one in every if has_room(one, reserve)]
    rows = _undominated([*ends, *_evaluated(with_room, search, ends)])
    evaluated = len(search.evaluator.candidates.keys() | lean.evaluator.candidates.keys())
    return Front(tuple(_apart(rows, apart)), space.size, len(every), len(every) - len(with_room), evaluated)


def _evaluated(
    configurations: Iterable[Configuration], search: Search, ends: Iterable[Candidate]
) -> Iterator[Candidate]:
    """What fits of each configuration that may be faster or leaner than what was looked at before."""
    rows = list(ends)
    for configuration in sorted(configurations, key=search.queue.passes) if rows else ():
        if not _beaten(search.queue.passes(configuration), configuration, rows):
            for one in filter(None, map(search.fitting, (configuration.at(), *configuration.lean()))):
                rows = _undominated([*rows, one])
                yield one


def _beaten(seconds: float, configuration: Configuration, rows: Iterable[Candidate]) -> bool:
    """Whether a row is as fast as computing alone takes it, and needs no more than it does at least."""
    bytes = least_needed(configuration.minimum_memory)
    return bytes is None or any(row.time.total <= seconds and row.fit.gpu.needed <= bytes for row in rows)


def _undominated(candidates: Iterable[Candidate]) -> list[Candidate]:
    """From the fastest to the leanest, each leaner than the one before."""
    rows: list[Candidate] = []
    for one in sorted(candidates, key=lambda one: (rounded(one.time.total), one.fit.gpu.needed)):
        if not rows or one.fit.gpu.needed < rows[-1].fit.gpu.needed:
            rows.append(one)
    return rows


def _apart(rows: list[Candidate], apart: float) -> Iterator[Candidate]:
    before: Candidate | None = None
    for row in rows:
        if before is None or row is rows[-1] or row.fit.gpu.needed <= before.fit.gpu.needed * (1 - apart):
            yield row
            before = row
