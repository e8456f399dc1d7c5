"""How long a model's tensors and the order of its modules take from its config: deepest and widest presets.

python benchmarks/architectures.py [--runs 15]   exits with 1 when one is over its bound.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from zeroplan.architectures.execution import execution
from zeroplan.architectures.read import build_module, read_config

PRESETS = Path(__file__).parents[1] / "presets" / "models"
BOUNDS = {("llama-3.1-405b", "tensors"): 0.010, ("llama-3.1-405b", "order"): 0.015,
          ("deepseek-v3", "tensors"): 0.015, ("deepseek-v3", "order"): 0.015}  # fmt: skip


def best(runs: int, count: Callable[[], object]) -> float:
    """Seconds of the fastest of so many runs."""
    found = []
    for _run in range(runs):
        start = perf_counter()
        count()
        found.append(perf_counter() - start)
    return min(found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    kept = True
    for (name, part), bound in BOUNDS.items():
        config = read_config(json.loads((PRESETS / f"{name}.json").read_text())["config"], name)
        build = partial(build_module, *config)
        seconds = best(runs, build if part == "tensors" else partial(execution, build()))
        kept = kept and seconds < bound
        print(f"{name:16}{part:9}{1000 * seconds:6.1f} ms of {1000 * bound:.0f}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
