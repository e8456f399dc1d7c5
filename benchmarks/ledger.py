"""How long one exact ledger takes, and how that grows with the tensors of a model.

    python benchmarks/ledger.py [--runs 7] [--gpus 512]

Each run counts afresh: nothing of an earlier one is remembered. Promised: Llama-3.1-405B on 512 GPUs under 50 ms.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from time import perf_counter

MODELS = ("llama-3.2-1b", "llama-2-7b", "llama-3.1-70b", "llama-3.1-405b", "qwen3-235b-a22b", "deepseek-v3")
PROMISED = "llama-3.1-405b"
BOUND = 0.050
CODE = """
import sys
from benchmarks.ledger import once
print(once(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def once(name: str, stage: int, gpus: int) -> float:
    """Seconds for the first ledger of a process, imports and the model's tensors aside."""
    from zeroplan.catalog.models import model
    from zeroplan.costs.ledger import ledger
    from zeroplan.specs.cluster import Cluster
    from zeroplan.specs.job import Job
    from zeroplan.specs.strategy import Strategy, Workload

    job = Job(model(name), Cluster(nodes=gpus // 8, gpus_per_node=8), Workload(2048), Strategy(stage=stage))
    gc.set_threshold(100_000)  # as the command line does
    start = perf_counter()
    ledger(job)
    return perf_counter() - start


def main() -> int:
    """Print a table; 1 when the promise is not kept."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--gpus", type=int, default=512)
    arguments = parser.parse_args()
    from zeroplan.catalog.models import model

    print(f"{'':18}{'tensors':>8}" + "".join(f"{f'ZeRO-{stage}, ms':>13}" for stage in range(4)))
    kept = True
    for name in MODELS:
        best = []
        for stage in range(4):
            command = [sys.executable, "-c", CODE, name, str(stage), str(arguments.gpus)]
            runs = [float(subprocess.check_output(command)) for _run in range(arguments.runs)]
            best.append(min(runs))
        kept = kept and (name != PROMISED or max(best) < BOUND)
        print(f"{name:18}{len(model(name).tensors):>8}" + "".join(f"{1000 * seconds:>13.1f}" for seconds in best))
    print(f"{PROMISED} on {arguments.gpus} GPUs: {'under' if kept else 'NOT under'} {1000 * BOUND:.0f} ms")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
