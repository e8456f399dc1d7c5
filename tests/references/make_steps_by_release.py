"""Weights after one optimizer step in releases of DeepSpeed, from their unpacked sdists, for steps_by_release.json.

    python -m tests.references.make_steps_by_release FOLDER...      each is deepspeed-VERSION

A linear layer of four weights, all zero, sees one of four inputs in each micro-batch and sums its output: SGD with a rate of
1 leaves minus 1 over the micro-batches in every weight whose micro-batch counted. On one rank, on the CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WRITTEN = HERE / "steps_by_release.json"
OFFLOAD = {"offload_optimizer": {"device": "cpu"}}


def config(stage, accumulated, **others):
    zero = {"stage": stage, **others.pop("zero", {})}
    return {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": accumulated, "bf16": {"enabled": True},
            "zero_optimization": zero, **others}  # fmt: skip


CASES = {
    "stage 2, 4": (config(2, 4), 4),
    "stage 1, 4": (config(1, 4), 4),
    "stage 2, 1": (config(2, 1), 1),
    "stage 2 offloaded, 4": (config(2, 4, zero=OFFLOAD), 4),
    "stage 1 offloaded, 4": (config(1, 4, zero=OFFLOAD), 4),
    "stage 2 offloaded, 2": (config(2, 2, zero=OFFLOAD), 2),
    "stage 0, two steps": (config(0, 1), 2),
    "stage 2 reduced in fp32, small bucket": (config(2, 1, communication_data_type="fp32", zero={"reduce_bucket_size": 2}), 1),
    "stage 1 reduced in fp32, small bucket": (config(1, 1, communication_data_type="fp32", zero={"reduce_bucket_size": 2}), 1),
    "stage 2 reduced in fp32": (config(2, 1, communication_data_type="fp32"), 1),
}
"""A config, and how many micro-batches it sees."""


def run(case):
    """The weights, or what stops."""
    import deepspeed
    import torch

    content, micro_batches = CASES[case]

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 1, bias=False)
            torch.nn.init.zeros_(self.linear.weight)

        def forward(self, inputs):
            return self.linear(inputs).sum()

    model = Layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    untested = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={**content, **untested})
    for number in range(micro_batches):
        inputs = torch.zeros(4, dtype=torch.bfloat16)
        inputs[number % 4] = 1
        engine.backward(engine(inputs))
        engine.step()
    return [round(float(weight), 6) for weight in engine.module.linear.weight.detach().flatten()]


def take(folder):
    """Make one release the deepspeed of this process."""
    import deepspeed_at

    deepspeed_at.prepare(folder)
    from tests.check.deepspeed_says import prepare

    prepare()
    os.chdir(tempfile.mkdtemp())


def answers(folder):
    """What one release makes of every case, in this process."""
    take(folder)
    result = {}
    for case in CASES:
        try:
            result[case] = run(case)
        except Exception as error:  # noqa: BLE001
            result[case] = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    return result


def write(folders, program, path):
    """Ask each release in a process of its own, by `program --one FOLDER`, and write what they say, the oldest first."""
    written = {}
    for folder in folders:
        environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parents[1]}", "DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0"}
        ran = subprocess.run([sys.executable, program, "--one", folder], env=environment, capture_output=True, text=True, check=True)
        written[Path(folder).name.removeprefix("deepspeed-")] = json.loads(ran.stdout.splitlines()[-1])
    ordered = dict(sorted(written.items(), key=lambda item: [int(part) for part in item[0].split(".")]))
    lines = [f'"{version}": {json.dumps(cases)}' for version, cases in ordered.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(answers(sys.argv[2])))
    else:
        write(sys.argv[1:], __file__, WRITTEN)
