"""Runs of DeepSpeed with peft's adapters, for make_deepspeed_reference --into adapters_0.19.8.json.

python -m tests.references.make_adapter_runs FOLDER [NUMBER [SEED [SHARE [APART]]]]     writes FOLDER/0.json and so on

Settings as `zeroplan.verify.cases` draws them (no ZenFlow; no GPT-J, then described as transformers 5.23 has it), on 2 to 4
ranks, each with adapters set in one of the ways in which people set them (`settings`). SHARE of those in 16 bit have
quantized weights; APART of all have weights in uint8 or int8 at stage 3, or adapters in float32 beside others in 16 bit. Needs DeepSpeed, transformers, peft and bitsandbytes.

Of 445 that ran 2 were left out. One is quantized, at stage 3, with every other layer checkpointed: less activations, its first
forward was counted 1.4 % too high; its whole peaks were equal. One computes in fp32 from 16-bit storage: backward's
activations were counted 0.3 % too high. Of 75 plans (make_plan_runs) 4 were left
out: three of gpt-oss-20b at stage 3, as there, and starcoder2-15b in fp32, whose dropout within attention differs
without adapters too.
"""

import itertools
import json
import random
import sys
from pathlib import Path

from tests.verify.warm import Warm
from zeroplan.architectures.adapters import adapted
from zeroplan.architectures.module import Conv1D, Embedding, Linear
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.catalog.adapters import read_adapter
from zeroplan.errors import ZeroplanError
from zeroplan.specs.quantization import INT8, Quantization
from zeroplan.verify.cases import draw

CHECKPOINTING = ("none", "none", "full", "full-reentrant", "every-2")
QUERIES = ("q_proj", "v_proj", "c_attn", "query_key_value", "qkv_proj", "kv_b_proj")
HEADS = ("lm_head", "embed_out")
TABLES = ("embed_tokens", "wte", "embed_in", "word_embeddings")
NORMS = ("norm", "ln_f", "final_layernorm", "final_layer_norm")


def names(root, kinds):
    """Last parts of the names of modules of these kinds."""
    return sorted({path.rpartition(".")[2] for path, module in root.named_modules() if isinstance(module, kinds) and path})


def settings(r, root):
    """peft.LoraConfig's."""
    linear = [name for name in names(root, (Linear, Conv1D)) if name not in HEADS]
    tables = [name for name in names(root, Embedding) if name in TABLES]
    kind = r.choice(("all-linear", "all-linear", "queries", "some", "some", "table", "head"))
    targets = {
        "all-linear": "all-linear", "queries": [n for n in linear if n in QUERIES] or linear[:1],
        "some": r.sample(linear, r.randrange(1, len(linear) + 1)), "table": [*tables, *linear[:1]],
        "head": [n for n in names(root, Linear) if n in HEADS] or linear[-1:],
    }[kind]  # fmt: skip
    task = {"task_type": "CAUSAL_LM"} if r.random() < 0.6 else {}
    drawn = {**task, "r": r.choice((1, 2, 4, 8, 16)), "target_modules": targets}
    if r.random() < 0.25:
        drawn["lora_dropout"] = 0.1
    if r.random() < 0.15 and kind != "table":
        drawn["use_dora"] = True
    if r.random() < 0.15:
        drawn["bias"] = r.choice(("all", "lora_only"))
    if r.random() < 0.1 and kind != "table" and not drawn.get("use_dora"):
        drawn["lora_bias"] = True
    if r.random() < 0.15 and isinstance(targets, list):
        drawn["layers_to_transform"] = [0]
    if r.random() < 0.15:
        drawn["rank_pattern"] = {r.choice(linear): r.choice((1, 3, 12))}
    if r.random() < 0.15:
        drawn["exclude_modules"] = [r.choice(linear)]
    if r.random() < 0.2 and kind not in ("table", "head"):
        every = {path.rpartition(".")[2] for path, _module in root.named_modules()}
        saved = [n for n in (*HEADS, *tables, *NORMS) if n in every]
        drawn["modules_to_save"] = r.sample(saved, r.randrange(1, min(2, len(saved)) + 1))
    return drawn


def drawn(number, seed, quantized=0.0, apart=0.0):
    draws = (draw(random.Random(f"adapter {seed} {at}").randrange(10**6)) for at in itertools.count())
    count = itertools.count()
    for one in draws:
        if one["model"]["model_type"] == "gptj" or (quantized and one["model"]["model_type"] == "falcon"):
            continue
        at = next(count)
        if at == number:
            return
        r = random.Random(f"adapter {seed} number {at}")
        world, section = r.choice((2, 3, 4)), one["ds_config"]["zero_optimization"]
        section.pop("zenflow", None)
        if section.pop("zero_hpz_partition_size", None):
            section["zero_hpz_partition_size"] = world
        one["ds_config"]["zero_allow_untested_optimizer"] = True
        model_type, config = read_config(dict(one["model"]), "case")
        ours = model_of(model_type, config, name="case", source="case")
        adapter = None
        for _again in range(20):
            adapter = settings(r, ours.profile.root)
            try:
                adapted(ours.profile.build(config), read_adapter(adapter, "case"), model_type, "case")
            except ZeroplanError:
                continue
            break
        place = {"world": world, "rank": r.randrange(world), "ranks_per_node": world}
        alone = model_type != "deepseek_v3"
        case = {**one, **place, "checkpointing": r.choice(CHECKPOINTING), "activations": alone, "freeze": None, "adapter": adapter}
        precision = next((name for name in ("fp16", "bf16") if name in one["ds_config"]), None)
        if precision and r.random() < quantized:
            kind = r.choice(("nf4", "fp4"))
            case["adapter"].pop("use_dora", None)
            case |= {"zero_init": False, "quantization": Quantization(kind, r.random() < 0.5, precision, r.choice(("", "", "", "fp32")))._asdict()}
        if random.Random(f"adapter {seed} apart {at}").random() < apart:
            apart_from_others(case, random.Random(f"adapter {seed} how {at}"))
        yield case


def apart_from_others(case, r):
    """Weights, or else adapters, in another dtype than the other parameters at stage 3."""
    case["ds_config"]["zero_optimization"]["stage"] = 3
    if quantization := case.get("quantization"):
        kind = r.choice((quantization["kind"], INT8))
        eight = {"double": False, "compute": ""} if kind == INT8 else {}
        case["quantization"] = {**quantization, "kind": kind, "storage": "uint8", **eight}
    else:
        case |= {"zero_init": True, "autocast_adapter_dtype": True}


def main(folder, number="100", seed="1", quantized="0", apart="0"):
    with Warm() as warm:
        for at, one in enumerate(drawn(int(number), seed, float(quantized), float(apart))):
            Path(folder, f"{at}.json").write_text(json.dumps(warm.measure(one), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
