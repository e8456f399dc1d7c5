"""Plans beside those of an older search, which enumerated every value of a fine grid by bounds (commit 0e13aeb).

    python -m benchmarks.plans [--every 1]   exits with 1 where a step is over 1 % slower.

`tests/references/plans_0e13aeb.json` has 257 drawn requests and the strategies that it chose; both are timed by today's
clock. Strategies that a space has no more (selective checkpointing needs lines of code) or that do not fit by today's
count are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from zeroplan.plan import free_space, label
from zeroplan.request.options import Options
from zeroplan.results.planning import read_plan
from zeroplan.search import Candidate, best, evaluate
from zeroplan.specs.strategy import Offload

REFERENCE = Path(__file__).parents[1] / "tests/references/plans_0e13aeb.json"
HEADROOM = "5%"
OFFLOADS = ("offload_optimizer", "offload_param")
SLOWER = 0.01
"""Share of a step by which a plan may be slower."""


class Beside(NamedTuple):
    """A request, its plan then and now; None where nothing fits."""

    options: dict[str, str]
    before: Candidate | None
    now: Candidate | None
    seconds: float
    """Of the search now, and then."""
    seconds_before: float
    is_inside: bool
    """Whether the plan of then is one that the space still has, and that still fits."""

    @property
    def slower(self) -> float:
        """Share of the step that today's plan takes more; without end where it alone does not fit."""
        if self.before is None or self.now is None:
            return 0.0 if self.before is None else float("inf")
        return self.now.time.total / self.before.time.total - 1


def beside(rows: list[dict[str, Any]]) -> Iterator[Beside]:
    """Each row of the reference, searched anew."""
    for row in rows:
        request = read_plan(Options(**{**row["options"], "headroom": HEADROOM}))
        job, before = request.job(), None
        free = free_space(job, request.fixed)
        started = perf_counter()
        now = best(free, request.reserve).best
        seconds = perf_counter() - started
        if strategy := row["strategy"]:
            offloads = {name: Offload(**strategy[name]) for name in OFFLOADS if strategy[name]}
            before = evaluate(job.at(**{**strategy, **offloads}), request.reserve)
        kinds = {variant.choice["checkpointing"] for variant in free.variants}
        inside = before is None or (before.strategy.checkpointing in kinds and before.fit.accepted)
        yield Beside(row["options"], before, now, seconds, row["search_seconds"], inside)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    rows = json.loads(REFERENCE.read_text())["rows"][:: parser.parse_args().every]
    found = list(beside(rows))
    inside = [one for one in found if one.is_inside]
    slower = [one for one in inside if one.slower > SLOWER]
    for one in sorted(inside, key=lambda one: -one.slower)[:10]:
        if one.now and one.before:
            other = "" if label(one.now) == label(one.before) else f": {label(one.now)}, before {label(one.before)}"
            print(f"{one.slower:+8.3%}  {' '.join(f'--{key} {value}' for key, value in one.options.items())}{other}")
    print(f"{len(inside)} requests, {len(found) - len(inside)} elsewhere; {len(slower)} over {SLOWER:.0%} slower")
    for name, seconds in (("now", [one.seconds for one in found]), ("before", [one.seconds_before for one in found])):
        ordered = sorted(seconds)
        print(f"search {name}: median {ordered[len(ordered) // 2]:.2f} s, slowest {ordered[-1]:.2f} s")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
