"""Runs of DeepSpeed in which some parameters do not train, for make_deepspeed_reference --into frozen_0.19.8.json.

python -m tests.references.make_frozen_runs FOLDER [NUMBER [SEED]]     writes FOLDER/0.json and so on

First the few written out here, then so many drawn: settings as `zeroplan.verify.cases` draws them (no ZenFlow), on 2 to
4 ranks, each with one of the ways in which people freeze (`WAYS`). Needs DeepSpeed and transformers.
"""

import json
import random
import sys
from pathlib import Path

from tests.references.make_optimizer_runs import LLAMA, case
from tests.verify.warm import Warm
from zeroplan.verify.cases import draw

NORMS = ("*norm*", "*ln_*", "*layernorm*")
ATTENTION = ("*q_proj*", "*v_proj*", "*c_attn*", "*query_key_value*", "*qkv_proj*", "*kv_b_proj*")
TABLES = ("*embed*", "*wte*", "*wpe*")
HEADS = ("*lm_head*", "*embed_out*")
WAYS = {
    "norms": (("*",), NORMS),
    "tables frozen": (TABLES, ()),
    "last layer": (("*",), ("LAST",)),
    "q_proj and v_proj": (("*",), ATTENTION),
    "first layers frozen": ((*TABLES, "FIRST"), HEADS),
    "biases": (("*",), ("*bias",)),
    "tables": (("*",), TABLES),
    "head": (("*",), HEADS),
}
"""What is frozen, and what of it trains all the same; FIRST and LAST stand for the first and the last layer."""
LAYERS = ("num_hidden_layers", "n_layer")


def layers(model):
    return next((model[name] for name in LAYERS if name in model), 2)


def frozen(model, way):
    """The globs of a way, with the layers' numbers in them."""
    ends = {"FIRST": "*.0.*", "LAST": f"*.{layers(model) - 1}.*"}
    return {
        name: [ends.get(pattern, pattern) for pattern in patterns] or None
        for name, patterns in zip(("freeze", "train"), WAYS[way], strict=True)
    }


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, "reduce_bucket_size": 20_000, **more}}


def written_out():
    """Each stage and dtype; accumulation; both settings of overlap_comm; the optimizer on the host."""
    for at, (stage, way) in enumerate((stage, way) for stage in (0, 1, 2, 3) for way in list(WAYS)[:4]):
        precision = ("bf16", "fp16", "fp32")[at % 3]
        more = {"overlap_comm": at % 2 == 0} if stage else {}
        config = {**zero(stage, **more), "gradient_accumulation_steps": 1 + at % 2}
        yield case(stage, precision, section={}, world=2 + at % 3, rank=at % 2, config=config, **frozen(LLAMA, way))
    host = {"offload_optimizer": {"device": "cpu"}}
    for stage, way, accumulation in ((1, "norms", 1), (2, "q_proj and v_proj", 2), (3, "last layer", 2), (3, "norms", 1)):
        config = {**zero(stage, **host), "gradient_accumulation_steps": accumulation}
        yield case(stage, "bf16", section={}, world=2, config=config, **frozen(LLAMA, way))


def drawn(number, seed):
    for at in range(number):
        r = random.Random(f"frozen {seed} {at}")
        one, world = draw(r.randrange(10**6)), r.choice((2, 3, 4))
        section = one["ds_config"]["zero_optimization"]
        section.pop("zenflow", None)
        if section.pop("zero_hpz_partition_size", None):
            section["zero_hpz_partition_size"] = world
        place = {"world": world, "rank": r.randrange(world), "ranks_per_node": world}
        one["ds_config"]["zero_allow_untested_optimizer"] = True
        yield {**one, **place, "activations": False, **frozen(one["model"], r.choice(list(WAYS)))}


def main(folder, number="60", seed="1"):
    with Warm() as warm:
        for at, one in enumerate([*written_out(), *drawn(int(number), seed)]):
            Path(folder, f"{at}.json").write_text(json.dumps(warm.measure(one), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
