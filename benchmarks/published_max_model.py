"""How far the largest model that `recommend --max-params` finds is from what others ran and published.

    python -m benchmarks.published_max_model [--only ID]

Rows stand in tests/references/published/max_model.csv; max_model_asked.csv has the options that ask the same question,
or why a row is left out; max_model_reasons.csv says why a size is missed. Published sizes are those of models that
somebody tried, with the software of 2020 and 2021 and mostly without saying the batch (a micro-batch of one is asked).
Promised: a predicted size is 0.9 to 1.75 of the published one; the rows that max_model_reasons.csv names are predicted
smaller, never larger.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import zeroplan
from zeroplan.units import count

FOLDER = Path(__file__).parents[1] / "tests" / "references" / "published"
FILE, ASKED, REASONS = (FOLDER / f"max_model{part}.csv" for part in ("", "_asked", "_reasons"))
FULL = "5%"
"""Kept free of a card: largest models fill it up, so that by zeroplan's verdict they are tight."""
LEAST, MOST = 0.9, 1.75
"""Predicted over published."""


class Row(NamedTuple):
    name: str
    published: int
    strategy: str
    gpus: str
    asked: dict[str, str]
    """Options; empty where the row is left out."""
    left_out: str


class Compared(NamedTuple):
    row: Row
    predicted: int

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted / self.row.published


def read() -> list[Row]:
    with ASKED.open(encoding="utf-8") as stream:
        asked = {row["id"]: row for row in csv.DictReader(stream)}
    with FILE.open(encoding="utf-8") as stream:
        return [
            Row(row["id"], int(row["max_params"] or 0), row["strategy"], f"{row['gpus']} {row['gpu_type']}",
                options(asked[row["id"]]["asked"]), asked[row["id"]]["left_out"])
            for row in csv.DictReader(stream)
        ]  # fmt: skip


def options(typed: str) -> dict[str, str]:
    words = shlex.split(typed)
    return {name[2:].replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def compare(rows: Sequence[Row]) -> Iterator[Compared]:
    """The largest size of each row that asks; one question is asked once."""
    found: dict[tuple[tuple[str, str], ...], int] = {}
    for row in rows:
        key = tuple(row.asked.items())
        if row.asked and key not in found:
            sizes = zeroplan.recommend(max_params=True, headroom=FULL, **row.asked).sizes.values()
            found[key] = max((size.parameters for size in sizes if size), default=0)
        if row.asked:
            yield Compared(row, found[key])


def reasons() -> dict[str, str]:
    """Of the rows that are known to be missed."""
    with REASONS.open(encoding="utf-8") as stream:
        return {row["id"]: row["reason"] for row in csv.DictReader(stream)}


def kept(one: Compared, missed: dict[str, str]) -> bool:
    """Whether a row is inside what is promised of it."""
    return one.ratio < LEAST if one.row.name in missed else LEAST <= one.ratio <= MOST


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a row is outside of what is promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="one row by its id")
    only = parser.parse_args(arguments).only
    rows, missed, outside = read(), reasons(), 0
    print(f"{'row':28}{'GPUs':30}{'published':>10}{'predicted':>10}{'ratio':>7}")
    for one in compare([row for row in rows if only in (None, row.name)]):
        note = "" if kept(one, missed) else "  OUTSIDE"
        outside += bool(note)
        sizes = f"{count(one.row.published):>10}{count(one.predicted):>10}{one.ratio:>7.2f}"
        print(f"{one.row.name:28}{one.row.gpus[:29]:30}{sizes}{note}", flush=True)
        if one.row.name in missed:
            print(f"  smaller: {missed[one.row.name]}")
    print(f"Promised: {LEAST} to {MOST} of the published size; {len(missed)} rows are predicted smaller, as said.")
    left_out = Counter(row.left_out for row in rows if row.left_out)
    print("Left out:", *(f"  {number:3} rows: {reason}" for reason, number in left_out.most_common()), sep="\n")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
