"""Programs recorded at several batches and sequences as one, whose sizes are polynomials in both."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from zeroplan.architectures.recorded.program import Extent

Point = tuple[int, int]
"""A batch and a sequence."""
TERMS = len(Extent._fields)


class NotOneProgramError(Exception):
    """What runs at two points is not the same, or a size is no polynomial in the batch and the sequence."""


def grown(recorded: Sequence[Any], points: Sequence[Point]) -> Any:
    """One recording for all points. The first TERMS of them decide, the others have to agree.

    Raises `NotOneProgramError`.
    """
    first = recorded[0]
    if isinstance(first, Extent):
        return _extent(tuple([each.constant for each in recorded]), tuple(points))
    if any(type(each) is not type(first) for each in recorded):
        raise NotOneProgramError(f"{first} at {points[0]}, other things elsewhere")
    if isinstance(first, tuple):
        if len({len(each) for each in recorded}) > 1:
            raise NotOneProgramError(f"{len(first)} of {type(first).__name__} at {points[0]}, not as many elsewhere")
        parts = [grown(each, points) for each in zip(*recorded, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, dict):
        if any(each.keys() != first.keys() for each in recorded):
            raise NotOneProgramError("other choices of gradients")
        return {key: grown([each[key] for each in recorded], points) for key in first}
    if any(each != first for each in recorded):
        raise NotOneProgramError(f"{first} at {points[0]}, {recorded} in all")
    return first


@lru_cache(maxsize=4096)
def _extent(values: tuple[int, ...], points: tuple[Point, ...]) -> Extent:
    if len(set(values)) == 1:
        return Extent(values[0])
    coefficients = [sum((row[at] * values[at] for at in range(TERMS)), Fraction(0)) for row in _inverse(points[:TERMS])]
    found = Extent(*[int(each) for each in coefficients])
    if any(found.at(*point) != value for point, value in zip(points, values, strict=True)):
        raise NotOneProgramError(f"sizes {values} at {points}")
    return found


@lru_cache(maxsize=16)
def _inverse(points: tuple[Point, ...]) -> list[list[Fraction]]:
    """Of the matrix of what each term is at each point."""
    rows = [[Fraction(each) for each in (1, b, s, b * s, b * s * s, s * s)] for b, s in points]
    whole = [row + [Fraction(at == other) for other in range(TERMS)] for at, row in enumerate(rows)]
    for at in range(TERMS):
        pivot = next(row for row in range(at, TERMS) if whole[row][at])
        whole[at], whole[pivot] = whole[pivot], whole[at]
        whole[at] = [each / whole[at][at] for each in whole[at]]
        for other in range(TERMS):
            if other != at and whole[other][at]:
                factor = whole[other][at]
                whole[other] = [x - factor * y for x, y in zip(whole[other], whole[at], strict=True)]
    return [row[TERMS:] for row in whole]
