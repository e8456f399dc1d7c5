"""Runs that fitted, and runs that ran out of memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from benchmarks.published.engines import predict
from benchmarks.published.levels import capacity, levels, needed
from benchmarks.published.rows import USED, Row, UncomputableError

COMFORTABLE = 0.9
"""A run that was out of memory is not called a comfortable fit: it comes above this share of the card."""


class Asked(NamedTuple):
    row: Row
    needed: float
    """GiB: max allocated and the bare context where it fitted, what nvidia-smi would show where it did not."""
    card: float

    @property
    def share(self) -> float:
        return self.needed / self.card


def fitted(rows: Iterable[Row]) -> list[Asked]:
    """Runs whose existence proves that they fit; `UncomputableError` for one that has no form."""
    return [Asked(row, needed(predict(row)), _card(row)) for row in rows]


def ran_out(rows: Iterable[Row]) -> tuple[list[Asked], list[tuple[Row, str]]]:
    """Runs that were out of memory, and those of them that cannot be computed, with the reason."""
    asked, left_out = [], []
    for row in rows:
        if not row.ran_out:
            continue
        try:
            asked.append(Asked(row, levels(row, predict(row))[USED].at, _card(row)))
        except UncomputableError as error:
            left_out.append((row, str(error)))
    return asked, left_out


def _card(row: Row) -> float:
    found = capacity(row)
    if found is None:
        raise UncomputableError(f"no card known as {row.column('gpu_type')!r}")
    return found
