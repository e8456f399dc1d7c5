"""Weights after one step of a PipelineModule in releases of DeepSpeed, from their unpacked sdists, for
pipeline_by_release.json.

    python -m tests.references.make_pipeline_by_release FOLDER...      each is deepspeed-VERSION

One linear layer of four weights, all zero, in one stage on one rank, on the CPU: each micro-batch sees one of the four
inputs, the loss is the output, and SGD with a rate of 1 leaves minus 1 over the micro-batches where they are averaged.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

WRITTEN = Path(__file__).parent / "pipeline_by_release.json"
CASES = {
    "stage 0, 4": (0, 4, 1000), "stage 1, 4": (1, 4, 1000), "stage 0, 1": (0, 1, 1000), "stage 2, 4": (2, 4, 1000),
    "nothing printed": (1, 4, None),
}  # fmt: skip
"""A stage of ZeRO, the micro-batches of a step, and steps_per_print, where it is stated."""


def run(case):
    """The weights."""
    import deepspeed
    import torch
    from deepspeed.pipe import LayerSpec, PipelineModule

    stage, accumulated, printed = CASES[case]
    if not torch.distributed.is_initialized():
        deepspeed.init_distributed("gloo", rank=0, world_size=1)
    module = PipelineModule(
        [LayerSpec(torch.nn.Linear, 4, 1, bias=False)], num_stages=1, loss_fn=lambda outputs, _labels: outputs.sum()
    )
    torch.nn.init.zeros_(next(module.parameters()))
    module.to(torch.bfloat16)
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": accumulated, "bf16": {"enabled": True},
              "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True}  # fmt: skip
    config |= {} if printed is None else {"steps_per_print": printed}
    engine, *_ = deepspeed.initialize(model=module, optimizer=torch.optim.SGD(module.parameters(), lr=1.0), config=config)
    batches = [(torch.eye(4, dtype=torch.bfloat16)[number : number + 1], torch.zeros(1)) for number in range(accumulated)]
    engine.train_batch(iter(batches))
    return [round(float(weight), 6) for weight in next(engine.module.parameters()).detach().flatten()]


def answers(folder):
    """What one release makes of every case, in this process."""
    from tests.references.make_steps_by_release import take

    take(folder)
    result = {}
    for case in CASES:
        try:
            result[case] = run(case)
        except (Exception, SystemExit) as error:  # noqa: BLE001
            result[case] = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
    return result


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(answers(sys.argv[2])), flush=True)
        os._exit(0)  # some releases abort as they close the group of ranks
    else:
        from tests.references.make_steps_by_release import write

        write(sys.argv[1:], __file__, WRITTEN)
