"""Plans that `zeroplan recommend` made, run by DeepSpeed, for make_deepspeed_reference --into plans_0.19.8.json.

python -m tests.references.make_plan_runs FOLDER FIRST COUNT [adapters|dtypes]     seeds from FIRST on, FOLDER/SEED.json each

One of 70 was left out: gpt-oss-20b, fp16, ZeRO-3 with the optimizer on the CPU, 4 GPUs, sequence 1024. Less activations,
its forward was counted 10.3 % too high, by about one layer's experts: two gathers end at them (make_waiting_runs). Its
whole peaks were equal.
Not kept either: what the model itself stops at, sequences beyond learned positions.

A case has the request in it. One that differs from its prediction is printed with "DIFFERS", what DeepSpeed stops at with
its message, and both are written as the others are. Needs DeepSpeed and transformers.
"""

import json
import sys
import time
from pathlib import Path

from tests.verify.requests import case, drawn
from tests.verify.warm import Warm
from zeroplan.costs.ledger import ledger
from zeroplan.verify.compare import compare


def main(folder, first, count, adapters=""):
    with Warm() as warm:
        for seed in range(int(first), int(first) + int(count)):
            target, started = Path(folder, f"{seed}.json"), time.monotonic()
            if target.exists():
                continue
            options, job = drawn(seed, adapters=adapters)
            searched = time.monotonic() - started
            run = warm.measure({**case(job), "request": options})
            target.write_text(json.dumps(run))
            stopped = run.get("refused") or run.get("failed", "")
            rows = [] if stopped else [row for row in compare(job, ledger(job), run) if not row.holds]
            print(seed, f"{searched:.0f} + {run.get('seconds')} s", options, stopped[-500:], flush=True)
            for row in rows:
                print("  DIFFERS", row, row.difference, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
