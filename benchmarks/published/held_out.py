"""Each source predicted with fitted constants that were chosen without it: what is promised of rows never seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from statistics import mean, median
from typing import NamedTuple

from benchmarks.published.constants import OUTSIDE, RESERVED, RESERVED_2021, RESERVED_COMPILED
from benchmarks.published.levels import levels
from benchmarks.published.measures import ComparedLevel


class Choice(NamedTuple):
    """The constants that set a level rather than a line: see constants.py."""

    reserved: float
    reserved_2021: float
    outside: float


CHOICES = [
    Choice(*values)
    for values in product(
        (1.00, 1.02, 1.04, 1.06, 1.08, 1.10, 1.12), (1.10, 1.12, 1.14, 1.16, 1.18, 1.20), (2.0, 3.0, 4.0, 5.0, 6.0)
    )
]


class HeldOut(NamedTuple):
    chosen: dict[str, Choice]
    """For each source, without it."""
    errors: list[float]
    """Of all rows, smallest first."""


def held_out(compared: Sequence[ComparedLevel]) -> HeldOut:
    errors = {choice: [abs(_under(one, choice)) for one in compared] for choice in CHOICES}
    sources = [one.row.family for one in compared]
    chosen: dict[str, Choice] = {}
    found: list[float] = []
    for source in sorted(set(sources)):
        others = [index for index, other in enumerate(sources) if other != source]
        best = min(CHOICES, key=lambda choice: _miss(errors[choice][index] for index in others))
        chosen[source] = best
        found += [error for error, other in zip(errors[best], sources, strict=True) if other == source]
    return HeldOut(chosen, sorted(found))


def _miss(errors: Iterable[float]) -> float:
    """What the choice makes small: large errors and usual ones."""
    listed = list(errors)
    return mean(listed) + median(listed)


def _under(one: ComparedLevel, choice: Choice) -> float:
    found = one.found
    if found.ratio in (RESERVED, RESERVED_COMPILED):
        found = found._replace(ratio=found.ratio._replace(value=choice.reserved))
    elif found.ratio == RESERVED_2021:
        found = found._replace(ratio=found.ratio._replace(value=choice.reserved_2021))
    if found.outside == OUTSIDE:
        found = found._replace(outside=found.outside._replace(value=choice.outside))
    return levels(one.row, found)[one.level].at / one.measured - 1
