"""What an engine's module says about a row: lines held between steps, lines at the peak, what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.published.constants import OUTSIDE, RESERVED, Constant
from zeroplan.ledger import Line, total


class Moment(NamedTuple):
    place: str
    lines: tuple[Line, ...]

    @property
    def bytes(self) -> int:
        return total(self.lines)


class Prediction(NamedTuple):
    engine: str
    held: tuple[Line, ...]
    moments: tuple[Moment, ...]
    """Moments of a step that can be the peak, largest first."""
    initialize: int = 0
    """Bytes at most before the first step, where that is counted."""
    cached: int = 0
    """Bytes that it frees and the allocator keeps beside everything later, on a card with room."""
    ratio: Constant = RESERVED
    outside: Constant = OUTSIDE
    assumed: tuple[str, ...] = ()

    @property
    def peak(self) -> Moment:
        return self.moments[0]


def prediction(
    engine: str,
    candidates: Iterable[tuple[Sequence[Line], Sequence[Moment]]],
    *,
    initialize: int = 0,
    cached: int = 0,
    ratio: Constant = RESERVED,
    outside: Constant = OUTSIDE,
    assumed: Sequence[str] = (),
) -> Prediction:
    """Of several ranks, each with what it holds and its moments, the one with the highest peak; the most held."""
    ranks = list(candidates)
    held = max((lines for lines, _moments in ranks), key=total)
    moments = max((moments for _held, moments in ranks), key=lambda rank: max(one.bytes for one in rank))
    largest_first = tuple(sorted(moments, key=lambda one: -one.bytes))
    return Prediction(engine, tuple(held), largest_first, initialize, cached, ratio, outside, tuple(assumed))
