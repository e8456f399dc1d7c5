"""Runs of DeepSpeed with the optimizers that the Trainer makes, and with models built in another dtype than they train
in, for make_deepspeed_reference --into optimizers_0.19.8.json.

python -m tests.references.make_optimizer_runs FOLDER     writes FOLDER/0.json and so on

Torch's own updates (fused, foreach, tensor by tensor) under a config without an optimizer section, with the Trainer's
two parameter groups; AdamW also as a section asks for it (torch_adam). Models built on the GPU in fp32, or in the other
16-bit dtype, which DeepSpeed casts. Fused SGD has no kernel for meta tensors. Needs DeepSpeed and transformers.
"""

import itertools
import json
import sys
from pathlib import Path

from tests.verify.warm import Warm

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1003, "tie_word_embeddings": False,
}  # fmt: skip
MODELS = (
    LLAMA,
    {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 509, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
     "attn_pdrop": 0.0},
    {"model_type": "gemma", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4,
     "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 700},
)  # fmt: skip
CLIENTS = (
    {"type": "AdamW", "fused": True}, {"type": "AdamW"}, {"type": "AdamW", "foreach": False},
    {"type": "SGD", "momentum": 0.9}, {"type": "SGD", "foreach": False},
)  # fmt: skip
SECTIONS = ({"fused": True}, {"foreach": False})
PRECISIONS = {
    "fp32": {}, "bf16": {"bf16": {"enabled": True}}, "fp16": {"fp16": {"enabled": True, "loss_scale": 16}},
}  # fmt: skip
FP32_GRADIENTS = {"data_types": {"grad_accum_dtype": "fp32"}}


def case(stage, precision, *, model=LLAMA, optimizer=None, section=None, world=4, rank=0, groups=1, config=None, **more):
    zero = {"stage": stage, **({"reduce_bucket_size": 20_000} if stage else {})}
    if stage == 3:
        zero |= {"sub_group_size": 30_000, "stage3_param_persistence_threshold": 100}
    ds_config = {"zero_optimization": zero, **PRECISIONS[precision], "gradient_accumulation_steps": 1, **(config or {})}
    if section is not None:
        ds_config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-5, **section}}
    elif optimizer["type"] == "SGD":
        ds_config["zero_allow_untested_optimizer"] = True
    return {
        "model": model, "ds_config": ds_config, "world": world, "rank": rank, "ranks_per_node": world, "seq": 24,
        "micro_batch": 1, "steps": 3, "mode": "meta", "attention": "sdpa", "checkpointing": "none", "optimizer": optimizer,
        "zero_init": False, "parameter_groups": groups, "freeze": None, "activations": False, **more,
    }  # fmt: skip


def cases():
    for stage, client in itertools.product((0, 1, 2, 3), CLIENTS[:3]):
        yield case(stage, ("bf16", "fp16", "fp32")[stage % 3], optimizer=client, groups=2)
    for stage, client in itertools.product((0, 2), CLIENTS[3:]):
        yield case(stage, "bf16", optimizer=client, groups=2)
    for stage, section in itertools.product((0, 2), SECTIONS):
        yield case(stage, "bf16", section={"torch_adam": True, **section}, world=2, rank=1)
    for client in CLIENTS[:2]:
        yield case(1, "bf16", optimizer=client, groups=2, config=FP32_GRADIENTS)
    for stage in (0, 1, 2, 3):
        yield case(stage, "bf16", section={}, built_in="fp32")
    for model, stage in itertools.product(MODELS[1:], (2, 3)):
        yield case(stage, "bf16", section={}, model=model, built_in="fp32")
    for stage in (2, 3):
        yield case(stage, "fp16", section={}, built_in="bf16")
    yield case(3, "bf16", section={}, model=MODELS[2], built_in="fp32", zero_init=True)
    offload = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 20_000}
    yield case(2, "bf16", section={}, config={"zero_optimization": offload}, built_in="fp32")


def main(folder):
    with Warm() as warm:
        for at, one in enumerate(cases()):
            Path(folder, f"{at}.json").write_text(json.dumps(warm.measure(one), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
