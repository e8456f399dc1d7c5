"""Spaces small enough to enumerate, drawn at random: does the search come as near as it promises?

    python -m benchmarks.regret [--seconds 600] [--seed 0]   exits with 1 where one does not, and names its seed.

As tests/search does for a few dozen spaces: within 1 % of the fastest, and for every fourth space of the leanest. With
more models than the tests.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import count
from time import perf_counter

from tests.search import spaces, test_search

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
    spaces.MODELS = (*spaces.MODELS, *MORE_MODELS)
    until, compared, differ = perf_counter() + asked.seconds, Counter[str](), 0
    for seed in count(asked.seed):
        if perf_counter() > until:
            break
        for what, holds, every in (
            ("fastest", test_search.test_as_fast_as_the_fastest_of_all, 1),
            ("leanest", test_search.test_as_lean_as_the_leanest_of_all, EVERY),
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
