"""What zeroplan recommends for runs that others published, beside what they chose.

    python -m benchmarks.published_recommendations [--rows TEXT] [--autotuning]

Every llm-foundry and ml-engineering row of tests/references/published/throughput.csv: the same model, cluster,
sequence, global batch, precision, optimizer and attention; stage, micro-batch, checkpointing, offload and DeepSpeed's
numbers are left open. Both configurations are counted and timed by zeroplan as DeepSpeed and transformers run them,
FSDP by the stage that shards alike, so that a gain is one of the configuration and not of the code. Then what
DeepSpeed's autotuner chose for four models (tests/references/published/autotuning.csv). Promised: the plan fits, and is
no slower than a published configuration that fits and that the search could choose; for the autotuner's rows the same
stage and micro-batch, or a faster one with a reason.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.published import autotuned
from benchmarks.published.recommended import CHOICES, Beside, compare, is_asked, lines, reason, shortage
from benchmarks.published.rows import Row, read
from benchmarks.published.timing.measures import THROUGHPUT, is_full
from zeroplan.plan import label
from zeroplan.search import Candidate
from zeroplan.units import gib, seconds

EQUAL = 1e-9
"""Share of a step within which two are as fast: sums in another order."""


def asked() -> list[Row]:
    return [row for row in read(THROUGHPUT) if is_full(row) and is_asked(row)]


def kept(one: Beside) -> bool:
    """Whether a row is as promised."""
    if one.plan is None or not one.plan.fit.accepted:
        return False
    return not one.comparable or one.gain >= -EQUAL


def text(one: Beside) -> list[str]:
    """A row in four lines: what ran where, both configurations, and why the plan is faster."""
    row, found = one.row, one.plan
    where = f"{row.gpus} × {row.column('gpu_type')}, {row.column('precision')}"
    shown = [
        f"{row.name}  {row.column('model')}, {row.seq:,} tokens, {where}",
        f"  published  {_line(one.published)}  {shortage(one)}".rstrip(),
    ]
    if found:
        shown.append(f"  plan       {_line(found)}  {-one.gain:+.1%}{'' if kept(one) else '  NOT AS PROMISED'}")
    return [*shown, f"             {reason(one)}"]


def _line(one: Candidate) -> str:
    return f"{label(one):58}{seconds(one.time.total):>9}{gib(one.fit.gpu.needed):>11}"


def summary(found: Sequence[Beside]) -> list[str]:
    """How many fit, how often the plan is another one, how much faster, and by which line."""
    comparable = [one for one in found if one.comparable]
    if not comparable:
        return [f"{len(found)} rows, none of which can be compared"]
    first = Counter(next(iter(lines(one)), "less than a thousandth") for one in comparable if one.gain > EQUAL)
    middle = median([one.gain for one in comparable])
    slower = [one.row.name for one in found if not one.comparable and one.gain < -EQUAL]
    return [
        f"{len(found)} rows; {len(comparable)} published configurations fit and lie in the space that is searched",
        f"of these the plan is no slower in {sum(one.gain >= -EQUAL for one in comparable)}, with all choices as "
        f"published in {sum(map(_same_choices, comparable))}; median gain {middle:.1%}",
        "faster, most of it by " + ", ".join(f"{name}: {count}" for name, count in first.most_common()),
        f"{len(found) - len(comparable)} do not fit as transformers and DeepSpeed run them; "
        f"plans that are slower than these: {', '.join(slower) or 'none'}",
    ]  # fmt: skip


def _same_choices(one: Beside) -> bool:
    names = (*CHOICES, "micro_batch")
    return one.plan is not None and all(
        getattr(one.published.strategy, name) == getattr(one.plan.strategy, name) for name in names
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a row is not as promised."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", default="", help="only rows whose id has this text")
    parser.add_argument("--autotuning", action="store_true", help="only what DeepSpeed's autotuner chose")
    options = parser.parse_args(arguments)
    found = []
    for one in compare([] if options.autotuning else [row for row in asked() if options.rows in row.name]):
        print("\n".join(text(one)), flush=True)
        found.append(one)
    if found:
        print("\n".join(["", *summary(found)]))
    missed = sum(not kept(one) for one in found)
    for tuned in autotuned.compare() if not options.rows else ():
        print("\n".join(["", *autotuned.text(tuned)]))
        missed += not autotuned.kept(tuned)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
