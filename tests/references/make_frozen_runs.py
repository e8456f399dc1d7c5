"""Runs of DeepSpeed in which some parameters do not train, for make_deepspeed_reference --into frozen_0.19.8.json.

python -m tests.references.make_frozen_runs FOLDER [NUMBER [SEED]]     writes FOLDER/0.json and so on

First the few written out here, then so many drawn: settings as `zeroplan.verify.cases` draws them (no ZenFlow; no GPT-J,
then described as transformers 5.23 has it), on 2 to 4 ranks, each with one of the ways in which people freeze (`WAYS`), or
with tensors frozen at random. DeepSeek's routers are built in fp32 there, so without DeepSpeed that model does not run
alone. Needs DeepSpeed and transformers.
"""

import itertools
import json
import random
import sys
from pathlib import Path

from tests.references.make_optimizer_runs import LLAMA, case
from tests.verify.warm import Warm
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.model import with_frozen
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


CHECKPOINTING = ("none", "none", "full", "full-reentrant", "every-2")


def globs(model, way):
    """A way's, with the layers' numbers in them."""
    layers = next((model[name] for name in LAYERS if name in model), 2)
    ends = {"FIRST": "*.0.*", "LAST": f"*.{layers - 1}.*"}
    return [[ends.get(pattern, pattern) for pattern in patterns] for patterns in WAYS[way]]


def frozen(model, way):
    return dict(zip(("freeze", "train"), globs(model, way), strict=True))


def ways(model):
    """Those that leave something to train, and something frozen."""
    ours = model_of(*read_config(dict(model), "case"), name="case", source="case")
    for way in WAYS:
        try:
            if with_frozen(ours, *globs(model, way)).frozen:
                yield frozen(model, way)
        except ContradictionError:
            continue
    yield {"freeze": [tensor.name for tensor in ours.tensors], "train": None}


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, "reduce_bucket_size": 20_000, **more}}


def written_out():
    """Each stage and dtype; accumulation; both settings of overlap_comm; the optimizer on the host."""
    for at, (stage, way) in enumerate((stage, way) for stage in (0, 1, 2, 3) for way in list(WAYS)[:4]):
        precision = ("bf16", "fp16", "fp32")[at % 3]
        more = {"overlap_comm": at % 2 == 0} if stage else {}
        config = {**zero(stage, **more), "gradient_accumulation_steps": 1 + at % 2}
        yield case(stage, precision, section={}, world=2 + at % 3, rank=at % 2, config=config, activations=True,
                   **frozen(LLAMA, way))  # fmt: skip
    host = {"offload_optimizer": {"device": "cpu"}}
    for stage, way, accumulation in ((1, "norms", 1), (2, "q_proj and v_proj", 2), (3, "last layer", 2), (3, "norms", 1)):
        config = {**zero(stage, **host), "gradient_accumulation_steps": accumulation}
        yield case(stage, "bf16", section={}, world=2, config=config, activations=True,
                   **frozen(LLAMA, way))  # fmt: skip


def drawn(number, seed):
    draws = (draw(random.Random(f"frozen {seed} {at}").randrange(10**6)) for at in itertools.count())
    for at, one in enumerate(itertools.islice((one for one in draws if one["model"]["model_type"] != "gptj"), number)):
        r = random.Random(f"frozen {seed} number {at}")
        world, section = r.choice((2, 3, 4)), one["ds_config"]["zero_optimization"]
        section.pop("zenflow", None)
        if section.pop("zero_hpz_partition_size", None):
            section["zero_hpz_partition_size"] = world
        one["ds_config"]["zero_allow_untested_optimizer"] = True
        way = r.choice(list(ways(one["model"])))
        if not way["train"] and len(way["freeze"]) > len(TABLES):  # at random
            way["train"] = r.sample(way["freeze"], r.randrange(1, len(way["freeze"])))
        place = {"world": world, "rank": r.randrange(world), "ranks_per_node": world}
        alone = one["model"]["model_type"] != "deepseek_v3"
        yield {**one, **place, "checkpointing": r.choice(CHECKPOINTING), "activations": alone, **way}


def main(folder, number="100", seed="1"):
    with Warm() as warm:
        for at, one in enumerate([*written_out(), *drawn(int(number), seed)]):
            Path(folder, f"{at}.json").write_text(json.dumps(warm.measure(one), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
