"""How often Muon's update runs in two steps of two layers, in releases of DeepSpeed, from their unpacked sdists.

    python -m tests.references.make_muon_by_release FOLDER...      each is deepspeed-VERSION

For muon_by_release.json: by release and stage, with and without an optimizer on the host; 4 is each of both matrices in each step,
0 that they were updated as others are. What stops stands as its error. On one rank, on the CPU.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path

from tests.references.make_steps_by_release import take, write

WRITTEN = Path(__file__).parent / "muon_by_release.json"
CASES = {"stage 0": (0, False)} | {
    f"stage {stage}{', offloaded' * offloads}": (stage, offloads) for stage in (1, 2, 3) for offloads in (False, True)
}


def counted() -> list[int]:
    """A count that every function called muon_update raises."""
    import deepspeed.runtime.zero.stage3

    with suppress(ImportError):
        import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401
    calls = [0]
    for module in [one for name, one in sys.modules.items() if name.startswith("deepspeed") and hasattr(one, "muon_update")]:

        def counting(*args, _update=module.muon_update, **kwargs):
            calls[0] += 1
            return _update(*args, **kwargs)

        module.muon_update = counting
    return calls


def run(stage, offloads, calls):
    import deepspeed
    import torch

    calls[0] = 0
    zero = {"stage": stage, **({"offload_optimizer": {"device": "cpu"}} if offloads else {})}
    config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero,
              "optimizer": {"type": "Muon", "params": {"lr": 0.002, "weight_decay": 0.01}}}  # fmt: skip
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 16))
    try:
        engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
        for _ in range(2):
            engine.backward(engine(torch.randn(1, 16, dtype=torch.bfloat16)).float().pow(2).mean())
            engine.step()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {' '.join(str(error).split())[:60]}"
    return calls[0]


def answers(folder):
    """What one release makes of every case, in this process."""
    take(folder)
    calls = counted()
    return {name: run(*case, calls) for name, case in CASES.items()}


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        print(json.dumps(answers(sys.argv[2])))
    else:
        write(sys.argv[1:], __file__, WRITTEN)
