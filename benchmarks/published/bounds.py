"""What is promised of published rows, how it is read, and the few measures that both benchmarks share."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.published.rows import Row


class Bound(NamedTuple):
    text: str
    kept: bool

    def __str__(self) -> str:
        return f"  {'ok ' if self.kept else 'NOT'} {self.text}"


def acceptance(rows: Sequence[Row], wanted: Path, error: Callable[[Row], float], width: int) -> list[Bound]:
    """The rows that a file names, each inside the tolerance that it asks; ids take `width` columns."""
    named = {row.name: row for row in rows}
    with wanted.open(newline="") as file:
        entries = list(csv.DictReader(file))
    found = []
    for entry in entries:
        off, within = error(named[entry["id"]]), float(entry["within"])
        text = f"{entry['id']:{width}}{off:>+7.1%} within {within:.0%}: {entry['isolates']}"
        found.append(Bound(text, abs(off) <= within))
    return found


def read_reasons(path: Path) -> dict[str, str]:
    """By id."""
    with path.open(newline="") as file:
        return {entry["id"]: entry["reason"] for entry in csv.DictReader(file)}


def nine_in_ten(errors: Sequence[float]) -> float:
    """What nine in ten of these are within; they are sorted, the smallest first."""
    return errors[-(-9 * len(errors) // 10) - 1]
