"""What the clock adds to a ledger: seconds of one step's time, after the ledger of the same job.

    python benchmarks/clock.py [--runs 50]

Asked: under 1 ms for the closed forms, under 20 ms with the replay of the collectives' order. Shown are the closed
forms, the replay's first run, which works the order out, each in a process of its own, and its later ones, as the
fastest of some runs.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from time import perf_counter

from zeroplan.catalog import hardware
from zeroplan.catalog.models import from_preset
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.step import software_of, step_time
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload, Strategy, Workload

CLOSED, REPLAY = 1e-3, 20e-3
PROCESSES = 5
MODELS = ("gpt2", "llama-3.1-8b", "mixtral-8x7b", "llama-3.1-405b")
STRATEGIES = {
    "stage 1": Strategy(stage=1), "stage 2, overlapped": Strategy(stage=2, overlap_comm=True),
    "stage 3, checkpointing": Strategy(stage=3, checkpointing="full"),
    "stage 3, offload": Strategy(stage=3, offload_optimizer=Offload("cpu")),
}  # fmt: skip


CODE = """
import sys
from benchmarks.clock import timed
print(timed(sys.argv[1], sys.argv[2], True, 1)[0])
"""


def timed(name: str, strategy: str, in_order: bool, runs: int) -> list[float]:
    """Seconds of each run after the ledger's, with the replay or by closed forms; the first works the order out."""
    gc.set_threshold(100_000)  # as the command line does
    cluster = hardware.cluster("dgx-h100")._replace(nodes=64)
    job = Job(from_preset(name), cluster, Workload(1024), STRATEGIES[strategy])
    counted, software, found = ledger(job), software_of(job), []
    step_time(job, counted, software._replace(in_order=False))
    for _run in range(runs):
        start = perf_counter()
        step_time(job, counted, software._replace(in_order=in_order))
        found.append(perf_counter() - start)
    return found


def seconds(name: str, strategy: str, runs: int) -> tuple[float, float, float]:
    """By closed forms; the first with the replay; a later one."""
    command = [sys.executable, "-c", CODE, name, strategy]
    first = min(float(subprocess.check_output(command)) for _process in range(PROCESSES))
    return min(timed(name, strategy, False, runs)), first, min(timed(name, strategy, True, runs))


def main() -> int:
    """Print a table; 1 when a promise is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50)
    runs, kept = parser.parse_args().runs, True
    print(f"{'ms':42}{'closed forms':>14}{'first replay':>14}{'later ones':>14}")
    for model in MODELS:
        for name in STRATEGIES:
            closed, first, later = seconds(model, name, runs)
            kept = kept and closed < CLOSED and first < REPLAY
            print(f"{model:18}{name:24}{closed * 1e3:>14.3f}{first * 1e3:>14.3f}{later * 1e3:>14.3f}")
    promise = f"closed forms under {CLOSED * 1e3:.0f} ms, the replay under {REPLAY * 1e3:.0f} ms"
    print(f"{promise}: {'kept' if kept else 'NOT kept'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
