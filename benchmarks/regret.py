"""Spaces small enough to enumerate, drawn at random: does the search find what enumerating finds?

    python -m benchmarks.regret [--seconds 600] [--seed 0]   exits with 1 where one differs, and names its seed.

As tests/search does for a few dozen spaces: the fastest to twelve digits, and of every fourth space, on nodes of drawn
memory, the leanest to the byte. With more models than the tests.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from itertools import count
from time import perf_counter

from tests.search import test_best_first, test_least_memory
from zeroplan.__main__ import FEW_COLLECTIONS

MORE_MODELS = (
    "gemma-2-2b", "falcon-7b", "bert-base", "phi-2", "qwen3-0.6b", "pythia-1.4b", "smollm2-135m", "llama-3.1-8b",
    "bloom-560m", "gpt-j-6b", "gpt-oss-20b",
)  # fmt: skip
EVERY = 4
"""Spaces of which one is also searched for the leanest."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    gc.set_threshold(FEW_COLLECTIONS)
    test_best_first.MODELS = (*test_best_first.MODELS, *MORE_MODELS)
    until, compared, differ = perf_counter() + asked.seconds, Counter[str](), 0
    for seed in count(asked.seed):
        if perf_counter() > until:
            break
        for what, holds, every in (
            ("fastest", test_best_first.test_as_fast_as_the_fastest_of_all, 1),
            ("leanest", test_least_memory.test_as_lean_as_the_leanest_of_all, EVERY),
        ):
            if seed % every:
                continue
            compared[what] += 1
            try:
                holds(seed)
            except AssertionError as error:
                differ += 1
                print(f"seed {seed}, {what}: {next(iter(str(error).splitlines()), 'differs')}", flush=True)
    print(f"{compared['fastest']} spaces for the fastest and {compared['leanest']} for the leanest: {differ} differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
