"""What an engine's module says about a row: lines held between steps, lines at the peak, what was assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

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

    @property
    def terms(self) -> set[str]:
        """Names of all that it is made of."""
        lines = (entry.name for moment in self.moments for entry in moment.lines)
        return {*lines, *(entry.name for entry in self.held), *BESIDE}

    def without(self, term: str) -> Prediction:
        """The same with one term taken out."""
        if term in BESIDE:
            field, nothing = BESIDE[term]
            return self._replace(**{field: nothing})
        held = tuple(entry for entry in self.held if entry.name != term)
        moments = [Moment(one.place, tuple(e for e in one.lines if e.name != term)) for one in self.moments]
        return self._replace(held=held, moments=tuple(sorted(moments, key=lambda one: -one.bytes)))


BESIDE: dict[str, tuple[str, Any]] = {
    "reserved beside max allocated": ("ratio", Constant(1, 1, 1, "", "", "")),
    "outside the allocator": ("outside", Constant(0, 0, 0, "", "", "")),
    "the peak of initialize": ("initialize", 0),
    "blocks that initialize leaves": ("cached", 0),
}
"""Terms that are no lines, and what stands for their absence."""


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
