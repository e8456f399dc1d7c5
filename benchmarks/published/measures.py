"""Rows with their predictions, the rows that count, and how far predictions are off."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple

from benchmarks.published.bounds import nine_in_ten, read_reasons
from benchmarks.published.engines import predict
from benchmarks.published.levels import Value, levels
from benchmarks.published.prediction import Prediction
from benchmarks.published.rows import FILE, RESERVED, USED, Row, UncomputableError

CONTRADICTS_ITSELF = frozenset({"bslog3Doff-1"})
"""Max allocated equals allocated to four digits while more was reserved: left out of the measures, not of the table."""


class ComparedLevel(NamedTuple):
    row: Row
    level: str
    measured: float
    value: Value
    found: Prediction

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.value.at / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.value.low <= self.measured <= self.value.high


class Table(NamedTuple):
    compared: tuple[ComparedLevel, ...]
    left_out: tuple[tuple[Row, str], ...]
    """Rows that cannot be computed or compared, and why."""


def compare(rows: Iterable[Row]) -> Table:
    compared, left_out = [], []
    for row in rows:
        try:
            if row.ran_out:
                raise UncomputableError("out of memory: asked whether it fits")
            if row.measured is None:
                raise UncomputableError("no value in value_gib")
            level = row.level
            found = predict(row)
            compared.append(ComparedLevel(row, level, row.measured, levels(row, found)[level], found))
        except UncomputableError as error:
            left_out.append((row, str(error)))
    return Table(tuple(compared), tuple(left_out))


def counts(one: ComparedLevel) -> bool:
    """Whether a row takes part in the measures: full training, all known, and one form for it."""
    row = one.row
    what = row.column("what_was_measured")
    return (
        row.column("trainable") == "full" and row.column("quality") == "A"
        and not re.search(r"host|CPU|init", what) and not (row.stage == 3 and row.pp > 1)
        and row.name not in CONTRADICTS_ITSELF
    )  # fmt: skip


def distinct(compared: Iterable[ComparedLevel]) -> list[ComparedLevel]:
    """Levels of runs that differ only in how many micro-batches they accumulate, once where they are equal."""
    seen: dict[tuple[str, float], ComparedLevel] = {}
    for one in compared:
        seen.setdefault((re.sub(r"_mbc\d+", "", one.row.name), one.measured), one)
    return list(seen.values())


class Removed(NamedTuple):
    """What becomes of the measures when one term is taken out of every prediction."""

    term: str
    rows: int
    """That change."""
    worst: float
    """The largest change, as a share of what was measured."""
    median: float
    nine_in_ten: float


def removed(compared: Sequence[ComparedLevel]) -> list[Removed]:
    """Every term alone, those that change most rows first."""
    found = []
    for term in sorted({term for one in compared for term in one.found.terms}):
        less = [_without(one, term) for one in compared]
        changes = [new.error - one.error for one, new in zip(compared, less, strict=True)]
        changed = [change for change in changes if abs(change) > 0.002]
        if changed:
            measures = measure(less)
            worst = max(changed, key=abs)
            found.append(Removed(term, len(changed), worst, measures.median, measures.nine_in_ten))
    return sorted(found, key=lambda one: -one.rows)


def _without(one: ComparedLevel, term: str) -> ComparedLevel:
    found = one.found.without(term)
    return one._replace(found=found, value=levels(one.row, found)[one.level])


class Measures(NamedTuple):
    levels: int
    median: float
    nine_in_ten: float
    mean_of_sources: float
    inside: tuple[int, int]
    """Of reserved and nvidia-smi values: inside the printed range, and all."""


def measure(compared: Sequence[ComparedLevel]) -> Measures:
    errors = sorted(abs(one.error) for one in compared)
    ranged = [one for one in compared if one.level in (RESERVED, USED)]
    return Measures(
        len(errors),
        median(errors),
        nine_in_ten(errors),
        mean(by_source(compared).values()),
        (sum(one.inside for one in ranged), len(ranged)),
    )


def by_source(compared: Iterable[ComparedLevel]) -> dict[str, float]:
    """Mean absolute error of each source."""
    errors: dict[str, list[float]] = {}
    for one in compared:
        errors.setdefault(one.row.family, []).append(abs(one.error))
    return {source: mean(found) for source, found in errors.items()}


def reasons() -> dict[str, str]:
    """What is known of rows that are missed, by id; no prediction reads it."""
    return read_reasons(FILE.with_name("reasons.csv"))
