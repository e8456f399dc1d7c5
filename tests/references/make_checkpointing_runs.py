"""Runs of DeepSpeed with activation_checkpointing, for make_deepspeed_reference --into checkpointing_0.19.8.json.

python -m tests.references.make_checkpointing_runs FOLDER [NUMBER [SEED [SELECTIVE]]]     writes FOLDER/0.json and so on

As `zeroplan verify` measures on torch's meta device: deepspeed.checkpointing.checkpoint is every layer's checkpoint, and
deepspeed.checkpointing.configure has read the case's ds_config. Cases that transformers or the measurement's device
cannot run are passed over; what DeepSpeed stops at is written as refused. In SELECTIVE more cases attention alone is checkpointed, by torch.
"""

import json
import random
import sys
from itertools import chain
from pathlib import Path

from tests.references.activation_draws import FAMILIES, drawn_cases
from tests.references.make_selective_reference import OWN_ATTENTION

PARTITIONS, HOST = {"partition_activations": True}, {"cpu_checkpointing": True}
WAYS = (HOST, PARTITIONS, HOST | PARTITIONS, PARTITIONS, HOST | PARTITIONS, HOST, {"profile": True}, HOST)
CONTIGUOUS = (False, False, False, True, True, False, False, False)
LAYERS = ("num_hidden_layers", "n_layer")


def drawn(number, seed):
    """Every layer through DeepSpeed's function, under one of the section's settings after the other."""
    for at in range(number):
        r = random.Random(f"checkpoints {seed} {at}")
        case, layers = one(r, FAMILIES[at % len(FAMILIES)])
        way = (at + at // len(FAMILIES)) % len(WAYS)
        section = dict(WAYS[way])
        if CONTIGUOUS[way]:
            section |= {"contiguous_memory_optimization": True, "number_checkpoints": layers + r.choice((0, 0, 3, -1))}
        if r.random() < 0.2:
            section["synchronize_checkpoint_boundary"] = True
        case["ds_config"]["activation_checkpointing"] = section
        if case["model"]["model_type"] == "gpt2":
            case["attention"] = "sdpa"  # DeepSpeed empties the mask of eager attention, and runs on without it
        yield {**case, "checkpointing": "deepspeed"}


def selective(number, seed):
    families = [family for family in FAMILIES if family not in OWN_ATTENTION]
    for at in range(number):
        r = random.Random(f"selective {seed} {at}")
        case, _layers = one(r, families[2 * at % len(families)])
        case["model"].pop("reorder_and_upcast_attn", None)
        yield {**case, "checkpointing": "selective"}


def one(r, family):
    """A model as activations are drawn, everything else as `zeroplan.verify` draws; no files, no ZenFlow."""
    from zeroplan.verify.cases import draw, swaps

    settings = (draw(r.randrange(10**6)) for _again in iter(int, 1))
    case = next(
        each for each in settings
        if not swaps(each["ds_config"]["zero_optimization"]) and "zenflow" not in each["ds_config"]["zero_optimization"]
    )  # fmt: skip
    drawn_one = next(drawn_cases(family, r.randrange(10**6)))
    layers = r.randint(1, 7)
    model = drawn_one["config"] | {name: layers for name in LAYERS if name in drawn_one["config"]}
    changes = {"attention": drawn_one["attention"], "seq": min(drawn_one["seq"], 60), "freeze": None, "mode": "meta"}
    return {**case, "model": model, **changes}, layers


def main(folder, number="75", seed="1", more="16"):
    from zeroplan.verify.measure import measure

    for at, case in enumerate(chain(drawn(int(number), seed), selective(int(more), seed))):
        run = measure(case)
        print(at, case["model"]["model_type"], run.get("refused") or run.get("failed", "")[-300:], flush=True)
        Path(folder, f"{at}.json").write_text(json.dumps(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
