"""Runs of DeepSpeed under torch_autocast, for make_deepspeed_reference --into autocast_0.19.8.json.

python -m tests.references.make_autocast_runs FOLDER [NUMBER [SEED]]     writes FOLDER/0.json and so on
python -m tests.references.make_autocast_runs FOLDER NUMBER SEED alone   of one rank whose parameters are on the host

Settings and models are drawn as `zeroplan.verify.cases` draws them (no ZenFlow, nothing frozen), with fp32 weights.
CUDA's autocast is played on torch's meta device (zeroplan/verify/autocast.py). Needs DeepSpeed and transformers.
"""

import json
import random
import sys
from pathlib import Path

from zeroplan.verify.cases import draw
from zeroplan.verify.measure import measure

PRECISIONS = ("fp16", "bf16", "data_types", "communication_data_type")


def drawn(number, seed, alone):
    """All stages, the third in every other run; quantized weights go with no autocast."""
    for at in range(number):
        r = random.Random(f"autocast {seed} {at}")
        stage = 3 if alone else (3, 0, 3, 1, 3, 2)[at % 6]
        case = next(
            one for one in iter(lambda: draw(r.randrange(10**6)), None)
            if one["ds_config"]["zero_optimization"]["stage"] == stage
            and (not alone or (one["world"] == 1 and "offload_param" in one["ds_config"]["zero_optimization"]))
        )  # fmt: skip
        config = {name: value for name, value in case["ds_config"].items() if name not in PRECISIONS}
        config["zero_optimization"].pop("zenflow", None)
        config["torch_autocast"] = {"enabled": True, "dtype": r.choice(("bfloat16", "bfloat16", "float16"))}
        if r.random() < 0.25:
            config["zero_optimization"]["memory_efficient_linear"] = False
        yield {**case, "ds_config": config, "freeze": None, "checkpointing": r.choice(("none", "none", "full"))}


def main(folder, number="48", seed="1", *alone):
    for at, case in enumerate(drawn(int(number), seed, alone)):
        Path(folder, f"{at}.json").write_text(json.dumps(measure(case), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
