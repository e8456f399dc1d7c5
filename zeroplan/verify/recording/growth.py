"""Programs recorded at several batches and sequences as one, whose sizes are polynomials in both."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any

from zeroplan.architectures.recorded.program import Extent

Point = tuple[int, int]
"""A batch and a sequence."""
TERMS = range(len(Extent._fields) - 1)
FIXED = Extent(0)[1:]
"""Beside the constant of an extent that does not grow."""
OF_SEQUENCE, OF_BATCH = (0, 2, 5), (0, 1)
"""Terms that one sequence alone, and sequences of one length, can tell apart."""


class NotOneProgramError(Exception):
    """What runs at two points is not the same, or a size is no polynomial in the batch and the sequence."""


def terms(points: Sequence[Point]) -> Sequence[int]:
    """Which terms of an extent these points tell apart."""
    batches, sequences = (len({point[at] for point in points}) for at in (0, 1))
    return TERMS if batches > 1 and sequences > 1 else OF_SEQUENCE if sequences > 1 else OF_BATCH


def grown(recorded: Sequence[Any], points: Sequence[Point], chunk: int = 1) -> Any:
    """One recording for all points. As many of them as there are terms decide, the others have to agree.

    `chunk`: tokens that layers take together, whose number divides sizes. Raises `NotOneProgramError`.
    """
    return _Growth(tuple(points), chunk).grown(recorded)


def at_point(value: Any, point: Point) -> Any:
    """A grown recording at one point, as it would be recorded there."""
    known: dict[int, Any] = {}

    def at(value: Any) -> Any:
        if isinstance(value, Extent):
            return value if value[1:] == FIXED else Extent(value.at(*point))
        if not isinstance(value, tuple | dict):
            return value
        if id(value) not in known:
            parts = value.values() if isinstance(value, dict) else value
            known[id(value)] = _like(value, [at(each) if isinstance(each, tuple | dict) else each for each in parts])
        return known[id(value)]

    return at(value)


def _like(value: Any, parts: Sequence[Any]) -> Any:
    """A tuple or a mapping of other parts."""
    if isinstance(value, dict):
        return dict(zip(value, parts, strict=True))
    return value._make(parts) if hasattr(value, "_make") else tuple(parts)


class _Growth:
    def __init__(self, points: tuple[Point, ...], chunk: int) -> None:
        self.points, self.chunk = points, chunk
        self.known: dict[tuple[int, ...], Any] = {}
        """By the identities of those recorded: identical layers share a program, and like operators a backward."""
        self.extents: dict[tuple[int, ...], Extent] = {}

    def grown(self, recorded: Sequence[Any]) -> Any:
        first = recorded[0]
        if isinstance(first, Extent):
            return self._extent(tuple([each.constant for each in recorded]))
        if len(set(map(type, recorded))) > 1:
            raise NotOneProgramError(f"{first} at {self.points[0]}, other things elsewhere")
        if isinstance(first, tuple | dict):
            key = tuple(map(id, recorded))
            if key not in self.known:
                self.known[key] = _like(first, self._together(recorded))
            return self.known[key]
        if recorded.count(first) < len(recorded):
            raise NotOneProgramError(f"{first} at {self.points[0]}, {recorded} in all")
        return first

    def _together(self, recorded: Sequence[Any]) -> list[Any]:
        first = recorded[0]
        if len({len(each) for each in recorded}) > 1:
            what = f"{len(first)} of {type(first).__name__} at {self.points[0]}, not as many elsewhere"
            raise NotOneProgramError(what)
        if not isinstance(first, dict):
            return [self.grown(each) for each in zip(*recorded, strict=True)]
        if any(each.keys() != first.keys() for each in recorded):
            raise NotOneProgramError("other choices of gradients")
        return [self.grown([each[key] for each in recorded]) for key in first]

    def _extent(self, values: tuple[int, ...]) -> Extent:
        if values not in self.extents:
            self.extents[values] = _extent(values, self.points, self.chunk)
        return self.extents[values]


def _extent(values: tuple[int, ...], points: tuple[Point, ...], chunk: int) -> Extent:
    if len(set(values)) == 1:
        return Extent(values[0])
    chosen = terms(points)
    coefficients = dict.fromkeys(TERMS, Fraction(0))
    for term, row in zip(chosen, _inverse(points[: len(chosen)], tuple(chosen)), strict=True):
        coefficients[term] = sum((share * value for share, value in zip(row, values, strict=False)), Fraction(0))
    per = lcm(*[each.denominator for each in coefficients.values()])
    result = Extent._make([*[int(each * per) for each in coefficients.values()], per])
    if chunk * chunk % per or any(result.at(*point) != value for point, value in zip(points, values, strict=True)):
        raise NotOneProgramError(f"sizes {values} at {points}")
    return result


@lru_cache(maxsize=16)
def _inverse(points: tuple[Point, ...], chosen: tuple[int, ...]) -> list[list[Fraction]]:
    """Of the matrix of what each term is at each point."""
    size = len(chosen)
    of_points = ((1, b, s, b * s, b * s * s, s * s) for b, s in points)
    rows = [[Fraction(each[term]) for term in chosen] for each in of_points]
    whole = [row + [Fraction(at == other) for other in range(size)] for at, row in enumerate(rows)]
    for at in range(size):
        pivot = next(row for row in range(at, size) if whole[row][at])
        whole[at], whole[pivot] = whole[pivot], whole[at]
        whole[at] = [each / whole[at][at] for each in whole[at]]
        for other in range(size):
            if other != at and whole[other][at]:
                factor = whole[other][at]
                whole[other] = [x - factor * y for x, y in zip(whole[other], whole[at], strict=True)]
    return [row[size:] for row in whole]
