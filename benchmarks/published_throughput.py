"""How far predicted step times are from what others measured and published.

    python -m benchmarks.published_throughput [--all] [--held-out] [--rows OTHER.csv]

Rows stand in tests/references/published/throughput.csv. The cluster, the software and the collectives that a row gets
depend on what its columns say, never on its id. Promised of the core rows (full training, quality A, data parallel,
16 bits, nothing left open): mean absolute error at most 6 %, nine in ten within 12 %, the mean of the sources' means at
most 8 %, no source of three or more rows biased by more than 6 % and none of fewer off by more than 20 %; of fp8 rows a
mean of 10 %, of offload rows 12 % where the host's rate is known, of tensor-, pipeline- and context-parallel rows 12 %;
nine rows inside a tolerance of their own; nine in ten of all data-parallel rows inside the interval printed with the
prediction.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.published.bounds import Bound
from benchmarks.published.bounds import acceptance as accepted_within
from benchmarks.published.rows import FILE, Row, read
from benchmarks.published.timing import held_out
from benchmarks.published.timing.measures import (
    KINDS,
    THROUGHPUT,
    ComparedStep,
    by,
    compare,
    is_full,
    is_parallel,
    mean_of_sources,
    measure,
    reasons,
    source_of,
)
from zeroplan.costs.timing.speed import interval

MEAN, NINE_IN_TEN, OF_SOURCES, BIAS, FEW = 0.06, 0.12, 0.08, 0.06, 0.20
MEANS = {"fp8, data-parallel": 0.10, "offload": 0.12, "tensor, pipeline or context parallel": 0.12}
SEVERAL = 3
"""Rows from which on a source's bias says something."""
INSIDE = 0.9
HELD_OUT_MEAN, HELD_OUT_NINE = 0.10, 0.20


def at_most(what: str, value: float, bound: float) -> Bound:
    return Bound(f"{what} {value:.1%}, at most {bound:.0%}", value <= bound)


def core_bounds(core: Sequence[ComparedStep]) -> list[Bound]:
    found = measure(one.error for one in core)
    kept = [
        at_most("core rows: mean", found.mean, MEAN),
        at_most("core rows: nine in ten within", found.nine_in_ten, NINE_IN_TEN),
        at_most("core rows: mean of the sources' means", mean_of_sources(core), OF_SOURCES),
    ]
    for source, rows in by(core, source_of).items():
        own = measure(one.error for one in rows)
        if own.rows >= SEVERAL:
            kept.append(at_most(f"{source}, {own.rows} rows: bias", abs(own.bias), BIAS))
        else:
            worst = max(abs(one.error) for one in rows)
            kept.append(at_most(f"{source}, {own.rows} rows: the worst", worst, FEW))
    return kept


def acceptance(rows: Sequence[Row]) -> list[Bound]:
    """Rows inside a tolerance of their own."""
    return accepted_within(rows, FILE.with_name("throughput_acceptance.csv"), _error, 22)


def _error(row: Row) -> float:
    (one,) = compare([row]).compared
    return one.error


def intervals(compared: Sequence[ComparedStep]) -> Bound:
    inside = sum(found.low <= one.measured <= found.high for one in compared for found in [interval(one.time)])
    text = f"{inside} of {len(compared)} inside the printed interval, at least {INSIDE:.0%}"
    return Bound(text, inside >= INSIDE * len(compared))


def table(title: str, compared: Sequence[ComparedStep]) -> list[str]:
    """Errors by source, card, stage and world."""
    lines = [title, f"  {'':34}{'rows':>5}{'mean':>8}{'9 in 10':>9}{'bias':>8}"]
    lines.append(_line("all", compared))
    keys: dict[str, Callable[[Row], str]] = {
        "source": source_of, "card": lambda row: row.column("gpu_type").partition(" ")[0],
        "stage": lambda row: f"stage {row.stage}",
        "world": lambda row: f"{next(most for most in (1, 8, 64, 256, 9999) if row.gpus <= most):>4} GPUs at most",
    }  # fmt: skip
    for key in keys.values():
        lines += [_line(name, rows) for name, rows in by(compared, key).items()]
    return lines


def _line(name: str, compared: Sequence[ComparedStep]) -> str:
    found = measure(one.error for one in compared)
    return f"  {name:34}{found.rows:>5}{found.mean:>8.1%}{found.nine_in_ten:>9.1%}{found.bias:>+8.1%}"


def worst(compared: Sequence[ComparedStep], count: int = 10) -> list[str]:
    known = reasons()
    lines = [f"The {count} that are missed most: measured, predicted, what is known"]
    for one in sorted(compared, key=lambda one: -abs(one.error))[:count]:
        parts = ", ".join(f"{group} {one.time.of(group):.3g} s" for group in ("compute", "communication", "offload"))
        why = known.get(one.row.name, "no reason is known")
        lines += [
            f"  {one.row.name:28}{one.measured:>9.3f}{one.time.total:>9.3f} s{one.error:>+8.1%}  {parts}", f"    {why}"
        ]
    return lines


def every(compared: Sequence[ComparedStep]) -> list[str]:
    return [
        f"  {one.row.name:28}{one.measured:>9.3f}{one.time.total:>9.3f} s{one.error:>+8.1%}"
        for one in sorted(compared, key=lambda one: one.row.name)
    ]


def _bounds(kind: str, chosen: Sequence[ComparedStep], *, left_out: bool) -> list[Bound]:
    if kind != "core":
        return [at_most(f"{kind}: mean", measure(one.error for one in chosen).mean, MEANS[kind])]
    if not left_out:
        return core_bounds(chosen)
    found = measure(held_out.held_out(chosen).errors)
    return [
        *core_bounds(chosen),
        at_most("each source left out of the fit: mean", found.mean, HELD_OUT_MEAN),
        at_most("each source left out of the fit: nine in ten within", found.nine_in_ten, HELD_OUT_NINE),
    ]


def _left_out(rows: Sequence[tuple[Row, str]]) -> list[str]:
    counts: dict[str, int] = {}
    for _row, reason in rows:
        counts[reason] = counts.get(reason, 0) + 1
    return ["Left out", *(f"  {count:>4} {reason}" for reason, count in sorted(counts.items()))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=Path, default=THROUGHPUT, help="another CSV file with the same columns")
    parser.add_argument("--all", action="store_true", help="print every row")
    parser.add_argument("--held-out", action="store_true", help="fit without each source in turn (minutes)")
    asked = parser.parse_args(arguments)
    try:
        rows = read(asked.rows)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        parser.error(f"--rows: {error}")
    full = compare(row for row in rows if is_full(row))
    texts, promised = [], []
    for kind, belongs in KINDS.items():
        chosen = [one for one in full.compared if belongs(one.row)]
        if chosen:
            texts += [table(f"Quality A, full training: {kind}", chosen), worst(chosen)]
            promised += _bounds(kind, chosen, left_out=asked.held_out)
    if full.compared:
        promised.append(intervals([one for one in full.compared if not is_parallel(one.row)]))
    others = compare(row for row in rows if row.column("trainable") == "full" and not is_full(row))
    if others.compared:
        texts += [table("No bound promised: quality B", others.compared), worst(others.compared, 5)]
    if asked.rows == THROUGHPUT:
        accepted = acceptance(rows)
        texts.append(["Acceptance", *map(str, accepted)])
        kept = sum(one.kept for one in accepted)
        promised.append(Bound(f"{kept} of {len(accepted)} acceptance rows", kept == len(accepted)))
    texts.append(_left_out((*full.left_out, *others.left_out)))
    if asked.all:
        texts.append(["Every row", *every([*full.compared, *others.compared])])
    texts.append(["Promised", *map(str, promised)] if promised else ["Nothing is promised of these rows"])
    print("\n\n".join("\n".join(text) for text in texts))
    return 0 if all(one.kept for one in promised) else 1


if __name__ == "__main__":
    sys.exit(main())
