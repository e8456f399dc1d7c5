"""CPU seconds of the passes of narrow models under DeepSpeed, for hooks_0.19.8.json: what stage 3's hooks add to stage 1.

python -m tests.references.make_hook_seconds > tests/references/hooks_0.19.8.json     on a machine with nothing else to do

One rank of 8 through torch's fake process group, on the CPU: no streams, no events, no NCCL. Seconds are those of the
thread, the least of many passes. "kept": all is gathered by one look ahead and kept; "anew": each module gathers its own
and gives it back. Needs DeepSpeed and transformers.
"""

import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from zeroplan.calibrate.host import machine
from zeroplan.verify.measure import environment

WARM, TIMED = 4, 20
MODELS = {
    "gpt2": {"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_positions": 128, "vocab_size": 512, "resid_pdrop": 0.0,
             "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "llama": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
              "num_key_value_heads": 4, "vocab_size": 512},
}  # fmt: skip
LAYERS = {"gpt2": "n_layer", "llama": "num_hidden_layers"}
EVERYTHING = 10**12
SECTIONS = {
    "stage 1": {"stage": 1},
    "kept": {"stage": 3, "stage3_max_live_parameters": EVERYTHING, "stage3_max_reuse_distance": EVERYTHING,
             "stage3_param_persistence_threshold": 0},
    "anew": {"stage": 3, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
             "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
}  # fmt: skip


def case(model, layers, section):
    return {
        "model": {**MODELS[model], LAYERS[model]: layers}, "world": 8, "rank": 0, "ranks_per_node": 8, "seq": 16,
        "micro_batch": 1, "mode": "real", "attention": "sdpa", "checkpointing": "none", "optimizer": None,
        "ds_config": {
            "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}},
            "zero_optimization": SECTIONS[section],
        },
    }  # fmt: skip


def seconds(given):
    """(forward, backward), each the least."""
    from zeroplan.verify import job
    from zeroplan.verify.collectives import Collectives
    from zeroplan.verify.setting import Setting

    setting = Setting(given)
    Collectives(0).install()
    deepspeed = setting.start_deepspeed()
    model, batch = job.build(given, "cpu"), job.inputs(given, "cpu")
    engine, *_ = deepspeed.initialize(model=model, config=setting.config(), model_parameters=job.groups(model, 1))
    spent = []
    for step in range(WARM + TIMED):
        if step == WARM:
            gc.collect()
            gc.disable()
        start = time.thread_time()
        loss = engine(**batch).loss
        middle = time.thread_time()
        engine.backward(loss)
        end = time.thread_time()
        engine.step()
        spent.append((middle - start, end - middle))
    return [round(min(each), 6) for each in zip(*spent[WARM:], strict=True)]


def main():
    runs = []
    for model in MODELS:
        for layers in (12, 24):
            for section in SECTIONS:
                given = case(model, layers, section)
                code = (
                    "import json, sys; from tests.references.make_hook_seconds import seconds;"
                    "print(json.dumps(seconds(json.loads(sys.argv[1]))))"
                )
                ended = subprocess.run(
                    [sys.executable, "-c", code, json.dumps(given)], env={**os.environ, **environment(given)},
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                forward, backward = json.loads(ended.stdout.splitlines()[-1])
                runs.append({"model": model, "layers": layers, "zero": section, "forward": forward, "backward": backward})
    versions = {name: importlib.metadata.version(name) for name in ("deepspeed", "torch", "transformers")}
    found = {"versions": versions, "date": datetime.now(UTC).date().isoformat(), "machine": machine(), "runs": runs}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
