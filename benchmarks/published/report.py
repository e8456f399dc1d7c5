"""The benchmark's tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median

from benchmarks.published.bounds import nine_in_ten
from benchmarks.published.constants import Constant
from benchmarks.published.fits import Asked
from benchmarks.published.held_out import HeldOut
from benchmarks.published.levels import GIB
from benchmarks.published.measures import ComparedLevel, Removed, by_source, measure
from benchmarks.published.rows import LEVELS, Row

UNSURE = "no reason is known; the largest lines are"


def errors(title: str, compared: Sequence[ComparedLevel]) -> list[str]:
    """Measures over all, by level and by source."""
    if not compared:
        return [title, "  no rows"]
    found = measure(compared)
    lines = [title, f"  {'':18}{'rows':>5}{'median':>9}{'9 in 10':>9}{'mean':>8}{'bias':>8}"]
    lines.append(_line("all", compared))
    for level in LEVELS:
        lines += [_line(level, chosen) for chosen in [[one for one in compared if one.level == level]] if chosen]
    for source in sorted(by_source(compared)):
        lines.append(_line(source, [one for one in compared if one.row.family == source]))
    inside, ranged = found.inside
    lines.append(f"  mean of the sources' means {found.mean_of_sources:.1%}")
    if ranged:
        lines.append(f"  reserved and nvidia-smi inside the printed range: {inside} of {ranged}")
    return lines


def _line(name: str, compared: Sequence[ComparedLevel]) -> str:
    off = sorted(abs(one.error) for one in compared)
    at_nine = nine_in_ten(off)
    bias = mean(one.error for one in compared)
    return f"  {name:18}{len(off):>5}{median(off):>9.1%}{at_nine:>9.1%}{mean(off):>8.1%}{bias:>+8.1%}"


def rows(compared: Iterable[ComparedLevel]) -> list[str]:
    """Every row, GiB: measured, predicted, the range where there is one."""
    lines = [f"  {'id':46}{'level':14}{'measured':>9}{'predicted':>10}{'off':>8}  {'range':15} peak in"]
    for one in compared:
        value = one.value
        span = f"{value.low:.1f} - {value.high:.1f}" if value.low < value.high else ""
        mark = "" if one.inside or not span else " *"
        lines.append(
            f"  {one.row.name:46}{one.level:14}{one.measured:>9.2f}{value.at:>10.2f}{one.error:>+8.1%}"
            f"  {span + mark:15} {one.found.peak.place}"
        )
    return lines


def worst(compared: Iterable[ComparedLevel], known: dict[str, str], count: int = 10) -> list[str]:
    """The rows that are missed most, each with what is known about it."""
    lines = [f"The {count} that are missed most"]
    off = sorted(compared, key=lambda one: -abs(one.error))[:count]
    for one in off:
        reason = known.get(one.row.name) or guess(one)
        lines.append(f"  {one.error:>+7.1%}  {one.row.name}: {reason}")
    return lines


def guess(one: ComparedLevel) -> str:
    """What can be said of a row that nobody has looked at: what was assumed, and what weighs most."""
    largest = sorted(one.found.peak.lines, key=lambda entry: -entry.bytes)[:3]
    text = f"{UNSURE} " + ", ".join(f"{entry.name} {entry.bytes / GIB:.1f} GiB" for entry in largest)
    return f"{text}; assumed: {'; '.join(one.found.assumed)}" if one.found.assumed else text


def asked(title: str, runs: Sequence[Asked], *, highest: bool) -> list[str]:
    """Needed against the card, the runs nearest to the wrong side first."""
    ordered = sorted(runs, key=lambda run: -run.share if highest else run.share)
    shown = ordered[: 5 if highest else len(ordered)]
    text = "  {:18}{:>8.1f} GiB of {:>6.2f}   {:.2f}"
    return [title, *(text.format(run.row.name, run.needed, run.card, run.share) for run in shown)]


def left_out(found: Iterable[tuple[Row, str]]) -> list[str]:
    """Rows without a prediction, by reason."""
    groups: dict[str, list[str]] = {}
    for row, reason in found:
        groups.setdefault(reason, []).append(row.name or "?")
    lines = ["Not compared"]
    for reason, names in sorted(groups.items(), key=lambda group: -len(group[1])):
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        lines.append(f"  {len(names):>4}  {reason}: {shown}")
    return lines


def terms(found: Iterable[Removed]) -> list[str]:
    """What each term does for the measures."""
    lines = ["Each term taken out alone", f"  {'':34}{'rows':>5}{'most':>8}{'median':>9}{'9 in 10':>9}"]
    for one in found:
        text = f"{one.rows:>5}{one.worst:>+8.1%}{one.median:>9.1%}{one.nine_in_ten:>9.1%}"
        lines.append(f"  {one.term:34}{text}")
    return lines


def held_out(found: HeldOut) -> list[str]:
    """Measures where each source's constants were chosen without it."""
    errors = found.errors
    at_nine = nine_in_ten(errors)
    return [
        "Each source with reserved / max allocated and what lies outside chosen without it",
        f"  median {median(errors):.1%}, nine in ten within {at_nine:.1%}",
        *(
            f"  {source:18}{choice.reserved:.2f}, software of 2021 {choice.reserved_2021:.2f}, {choice.outside:.0f} GiB"
            for source, choice in found.chosen.items()
        ),
    ]


def constants(used: Iterable[tuple[str, Constant]]) -> list[str]:
    lines = ["Constants"]
    for name, constant in used:
        shown = f"{constant.value:>13,g}  {constant.unit} ({constant.kind})"
        lines.append(f"  {name.lower().replace('_', ' '):26}{shown}: {constant.evidence}")
    return lines

