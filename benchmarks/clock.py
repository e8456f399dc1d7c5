"""What the clock adds to a ledger: seconds of one step's time, after the ledger of the same job.

    python benchmarks/clock.py [--runs 50]

Asked: under 1 ms for the closed forms. Shown as the fastest of some runs, for a new micro-batch each time.
"""

from __future__ import annotations

import argparse
from time import perf_counter

from zeroplan.catalog import hardware
from zeroplan.catalog.models import from_preset
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing import step_time
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload, Strategy, Workload

BOUND = 1e-3
MODELS = ("gpt2", "llama-3.1-8b", "mixtral-8x7b", "llama-3.1-405b")


def fastest(name: str, strategy: Strategy, runs: int) -> float:
    cluster = hardware.cluster("dgx-h100")._replace(nodes=64)
    job = Job(from_preset(name), cluster, Workload(1024), strategy)
    counted = ledger(job)
    found = []
    for _run in range(runs):
        start = perf_counter()
        step_time(job, counted)
        found.append(perf_counter() - start)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    runs = parser.parse_args().runs
    strategies = {
        "stage 1": Strategy(stage=1), "stage 3, checkpointing": Strategy(stage=3, checkpointing="full"),
        "stage 3, offload": Strategy(stage=3, offload_optimizer=Offload("cpu")),
    }  # fmt: skip
    print(f"{'':18}{''.join(f'{name:>26}' for name in strategies)}")
    for model in MODELS:
        found = [fastest(model, strategy, runs) for strategy in strategies.values()]
        print(f"{model:18}{''.join(f'{seconds * 1e3:>23.3f} ms' for seconds in found)}")
        for seconds in found:
            if seconds > BOUND:
                print(f"  over the bound of {BOUND * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
