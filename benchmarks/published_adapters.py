"""How far predicted memory of adapters is from what others measured and published.

    python -m benchmarks.published_adapters [--only ID] [--all]

Rows stand in tests/references/published/adapters.csv, each with its source, what was assumed and why, or why it is not
planned. adapters_reasons.csv says what is known of rows that are missed; no prediction reads it. Promised: a median
error of at most 10 % over all that is planned, and over each of the kinds that ran under DeepSpeed; no row that ran out
of memory `fits`.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.published.adapters import (
    ADAPTERS,
    DEEPSPEED,
    GPTQ,
    KINDS,
    MEANING,
    AdapterRow,
    Predicted,
    predict,
    read,
)
from benchmarks.published.bounds import Bound, nine_in_ten, read_reasons
from zeroplan.fit import FITS

MEDIAN = 0.10
"""Of the errors of all rows that are planned, and of the two kinds that ran under DeepSpeed."""
WORST = 10


def compare(rows: Sequence[AdapterRow]) -> list[Predicted]:
    """All that are planned; a job that several rows measured is predicted for each."""
    return [predict(row) for row in rows if not row.left_out]


def measured(found: Sequence[Predicted]) -> list[Predicted]:
    return [one for one in found if not one.row.ran_out]


def bounds(found: Sequence[Predicted]) -> list[Bound]:
    groups = {"all that is planned": measured(found)}
    groups |= {kind: [one for one in measured(found) if one.row.kind == kind] for kind in (DEEPSPEED, GPTQ)}
    kept = []
    for name, group in groups.items():
        if group:
            off = median(abs(one.error) for one in group)
            kept.append(Bound(f"median of {name} {off:.1%}, at most {MEDIAN:.0%}", off <= MEDIAN))
    wrong = [one.row.name for one in found if one.row.ran_out and one.verdict == FITS]
    return [*kept, Bound(f"none that ran out fits {', '.join(wrong)}", not wrong)]


def table(found: Sequence[Predicted]) -> list[str]:
    """Medians by kind, and of each kind by what was measured."""
    lines = [f"{'':34}{'rows':>5}{'median':>8}{'9 in 10':>9}{'bias':>8}{'in range':>10}"]
    found = measured(found)
    for kind in KINDS:
        of_kind = [one for one in found if one.row.kind == kind]
        if of_kind:
            lines.append(_line(kind, of_kind))
            lines += [_line(f"  {name}", group) for name, group in _by_method(of_kind).items()]
    return [*lines, _line("all", found)]


def _by_method(found: Sequence[Predicted]) -> dict[str, list[Predicted]]:
    groups: dict[str, list[Predicted]] = {}
    for one in found:
        what = "QLoRA" if one.row.column("quantize") else "LoRA"
        what += " and head" * ("save=" in one.row.column("adapter"))
        groups.setdefault(f"{what}, {one.row.source}, {one.row.column('measures')}", []).append(one)
    return groups


def _line(name: str, found: Sequence[Predicted]) -> str:
    off = sorted(abs(one.error) for one in found)
    ranged = [one for one in found if one.ranged]
    inside = f"{sum(one.inside for one in ranged)} of {len(ranged)}" if ranged else ""
    bias = mean(one.error for one in found)
    return f"{name:34}{len(off):>5}{median(off):>8.1%}{nine_in_ten(off):>9.1%}{bias:>+8.1%}{inside:>10}"


def row_line(one: Predicted) -> str:
    if one.row.ran_out:
        return f"{one.row.name:32}{one.row.kind:10}{'ran out':>11}{one.at:>10.2f}{'':8}  {one.verdict}"
    low, high = one.level.low / 2**30, one.level.high / 2**30
    span = f"{low:.1f} - {high:.1f}{'' if one.inside else ' *'}" if one.ranged else ""
    numbers = f"{one.row.measured:>9.2f}{one.at:>10.2f}{one.error:>+8.1%}"
    return f"{one.row.name:32}{one.row.kind:10}{one.row.column('measures'):11}{numbers}  {span:16} {one.phase}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="rows whose id begins so")
    parser.add_argument("--all", action="store_true", help="print every row")
    asked = parser.parse_args(arguments)
    rows = [row for row in read() if row.name.startswith(asked.only or "")]
    found, reasons = compare(rows), read_reasons(ADAPTERS.with_name("adapters_reasons.csv"))
    lines = [*table(found), "", *(f"{kind}: {MEANING[kind]}" for kind in KINDS), ""]
    worst = sorted(measured(found), key=lambda one: -abs(one.error))[:WORST]
    lines.append(f"{'row':32}{'kind':10}{'instrument':11}{'measured':>9}{'predicted':>10}{'off':>8}  range, * outside")
    for one in found if asked.all or asked.only else worst:
        lines.append(row_line(one))
        if one.row.name in reasons:
            lines.append(f"  {reasons[one.row.name]}")
    left_out = Counter(row.left_out for row in rows if row.left_out)
    lines += ["", "Not planned:", *(f"  {number:3} rows: {reason}" for reason, number in left_out.most_common())]
    promised = bounds(found)
    print("\n".join([*lines, "", *map(str, promised)]))
    return 0 if all(bound.kept for bound in promised) else 1


if __name__ == "__main__":
    sys.exit(main())
