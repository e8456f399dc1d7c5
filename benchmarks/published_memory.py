"""How far predicted memory is from what others measured and published.

    python -m benchmarks.published_memory [--all] [--rows OTHER.csv]

Rows stand in tests/references/published/memory.csv. Which form a row gets depends on what its columns say, never on
its id. Promised of the rows with full training and quality A: median at most 3 %, nine in ten within 10 %, the mean of
the sources' means at most 5 %, nine in ten reserved and nvidia-smi values inside the printed range; twelve rows inside
a tolerance of their own; every run that fitted fits, and no run that was out of memory is called a comfortable fit.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.published import components, constants, fits, held_out, measures, report
from benchmarks.published.bounds import Bound
from benchmarks.published.bounds import acceptance as accepted_within
from benchmarks.published.measures import ComparedLevel, Measures
from benchmarks.published.rows import FILE, FITS, Row, UncomputableError, read

MEDIAN, NINE_IN_TEN, MEAN_OF_SOURCES, INSIDE = 0.03, 0.10, 0.05, 0.9
SEVERAL = 3
"""Sources from which on it says something to leave one out."""
OUT_OF_MEMORY = 11
"""Published runs that were out of memory and can be computed."""


def bounds(found: Measures) -> list[Bound]:
    inside, ranged = found.inside
    return [
        Bound(f"median {found.median:.1%}, at most {MEDIAN:.0%}", found.median <= MEDIAN),
        Bound(
            f"nine in ten within {found.nine_in_ten:.1%}, at most {NINE_IN_TEN:.0%}",
            found.nine_in_ten <= NINE_IN_TEN,
        ),
        Bound(
            f"mean of the sources' means {found.mean_of_sources:.1%}, at most {MEAN_OF_SOURCES:.0%}",
            found.mean_of_sources <= MEAN_OF_SOURCES,
        ),
        Bound(f"inside the range {inside} of {ranged}, at least {INSIDE:.0%}", inside >= INSIDE * ranged),
    ]


def acceptance(rows: Sequence[Row]) -> list[Bound]:
    """Twelve rows, each inside a tolerance of its own."""
    return accepted_within(rows, FILE.with_name("acceptance.csv"), _error, 46)


def _error(row: Row) -> float:
    if row.column("trainable") == "component":
        return components.part(row).error
    (one,) = measures.compare([row]).compared
    return one.error


def parts(rows: Sequence[Row]) -> list[str]:
    lines = ["Single layers and losses"]
    for row in rows:
        if row.column("trainable") != "component":
            continue
        try:
            found = components.part(row)
            lines.append(f"  {row.name:46}{found.predicted * 1024:>10.1f} MiB {found.error:>+7.1%}")
        except UncomputableError as reason:
            lines.append(f"  {row.name:46}{'':14} not compared: {reason}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=Path, default=FILE, help="another CSV file with the same columns")
    parser.add_argument("--all", action="store_true", help="print every row, every term and all constants")
    asked = parser.parse_args(arguments)
    try:
        rows = read(asked.rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        parser.error(f"--rows: {error}")
    own = asked.rows == FILE
    table = measures.compare(row for row in rows if row.lower("trainable") in ("full", ""))
    chosen = measures.distinct(one for one in table.compared if measures.counts(one))
    others = measures.distinct(one for one in table.compared if not measures.counts(one))
    known = measures.reasons()
    texts, promised = [], []
    if chosen:
        texts += [report.errors("Quality A, full training", chosen), report.worst(chosen, known)]
        promised += bounds(measures.measure(chosen))
    texts += _beside(others, known)
    for found, kept in (_out_of_memory(rows, own), _own(rows) if own else ([], [])):
        texts += found
        promised += kept
    texts.append(report.left_out(table.left_out))
    if asked.all:
        texts += _what_carries(chosen)
        texts.append(["Every row, GiB; * is outside the range", *report.rows([*chosen, *others])])
        named = [(name, one) for name, one in vars(constants).items() if isinstance(one, constants.Constant)]
        texts.append(report.constants(named))
    texts.append(["Promised", *map(str, promised)] if promised else ["Nothing is promised of these rows"])
    print("\n\n".join("\n".join(text) for text in texts))
    return 0 if all(one.kept for one in promised) else 1


Part = tuple[list[list[str]], list[Bound]]


def _out_of_memory(rows: Sequence[Row], own: bool) -> Part:
    found, left_out = fits.ran_out(rows)
    if not found and not left_out:
        return [], []
    above = sum(run.share > fits.COMFORTABLE for run in found)
    kept = above == len(found) and (not own or above >= OUT_OF_MEMORY)
    table = report.asked("Out of memory: what nvidia-smi would have shown, share of the card", found, highest=False)
    text = f"{above} of {len(found)} out-of-memory runs above {fits.COMFORTABLE} of the card"
    return [[*table, *report.left_out(left_out)[1:]]], [Bound(text, kept)]


def _own(rows: Sequence[Row]) -> Part:
    """What is asked of the project's own rows alone."""
    fitted = fits.fitted(read(FITS))
    fit = sum(run.share <= 1 for run in fitted)
    accepted = acceptance(rows)
    texts = [
        report.asked("Runs that fitted: max allocated and context, the five fullest", fitted, highest=True),
        parts(rows),
        ["Acceptance", *map(str, accepted)],
    ]
    return texts, [
        Bound(f"{fit} of {len(fitted)} runs that fitted fit", fit == len(fitted)),
        Bound(
            f"{sum(one.kept for one in accepted)} of {len(accepted)} acceptance rows",
            all(one.kept for one in accepted),
        ),
    ]


def _what_carries(chosen: Sequence[ComparedLevel]) -> list[list[str]]:
    if len(measures.by_source(chosen)) < SEVERAL:
        return []
    return [report.terms(measures.removed(chosen)), report.held_out(held_out.held_out(chosen))]


def _beside(others: Sequence[ComparedLevel], known: dict[str, str]) -> list[list[str]]:
    """Rows that no bound is promised for: a look at how far the forms carry."""
    texts = []
    for quality in sorted({one.row.column("quality") for one in others}):
        chosen = [one for one in others if one.row.column("quality") == quality]
        texts.append(report.errors(f"No bound promised: quality {quality or '?'}", chosen))
        texts.append(report.worst(chosen, known, 5))
    return texts


if __name__ == "__main__":
    sys.exit(main())
