"""Cases to measure, drawn from a seed: small models of odd sizes under every setting that moves a byte.

`draw(seed)` is a case as `zeroplan.verify.measure` takes it; the same seed gives the same case. Settings that DeepSpeed
0.19.8 is known to refuse are not drawn together (mixed accumulation at stage 0, ratio below stage 3, odd all-gather
buckets); what it refuses beyond that is measured as "refused".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from zeroplan.verify import zenflow

WORLDS = (1, 2, 3, 6, 8, 16, 64, 256)
BUCKETS = (1, 1_000, 12_344, 100_000, 1_000_000, 500_000_000)
"""Elements; even, because odd all-gather buckets are refused at stages 1 and 2 (but 1, which only reduces)."""
Model = dict[str, Any]


def _llama(r: random.Random) -> Model:
    heads = r.choice((2, 4, 6))
    return {
        "model_type": "llama", "hidden_size": heads * r.choice((8, 16, 24)), "num_attention_heads": heads,
        "num_key_value_heads": r.choice((1, 2, heads)), "intermediate_size": r.randrange(33, 300),
        "attention_bias": r.random() < 0.2,
    }  # fmt: skip


def _qwen3(r: random.Random) -> Model:
    return {**_llama(r), "model_type": "qwen3", "head_dim": r.choice((8, 16, 32))}


def _gemma2(r: random.Random) -> Model:
    return {
        **_llama(r), "model_type": "gemma2", "head_dim": 16, "query_pre_attn_scalar": 16, "tie_word_embeddings": True,
    }  # fmt: skip


def _gpt2(r: random.Random) -> Model:
    heads = r.choice((2, 3, 4))
    return {
        "model_type": "gpt2", "n_embd": heads * r.choice((8, 16, 20)), "n_head": heads,
        "n_positions": r.randrange(64, 200), "n_inner": r.randrange(33, 300),
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    }  # fmt: skip


def _opt(r: random.Random) -> Model:
    heads = r.choice((2, 3, 4))
    hidden = heads * r.choice((8, 16, 20))
    return {
        "model_type": "opt", "hidden_size": hidden, "num_attention_heads": heads, "ffn_dim": r.randrange(33, 300),
        "word_embed_proj_dim": r.choice((hidden, 24)), "max_position_embeddings": r.randrange(64, 200),
        "dropout": 0.0, "attention_dropout": 0.0,
    }  # fmt: skip


def _gpt_neox(r: random.Random) -> Model:
    heads = r.choice((2, 3, 4))
    return {
        "model_type": "gpt_neox", "hidden_size": heads * r.choice((8, 16, 24)), "num_attention_heads": heads,
        "intermediate_size": r.randrange(33, 300), "hidden_dropout": 0.0, "attention_dropout": 0.0,
    }  # fmt: skip


def _mixtral(r: random.Random) -> Model:
    return {
        **_llama(r), "model_type": "mixtral", "hidden_size": r.choice((32, 48, 64)), "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 8 * r.randrange(3, 20),
        "num_local_experts": r.choice((2, 3, 4)), "num_experts_per_tok": r.choice((1, 2)),
    }  # fmt: skip


def _deepseek_v3(r: random.Random) -> Model:
    return {
        "model_type": "deepseek_v3", "hidden_size": r.choice((32, 48, 64)), "num_attention_heads": 4,
        "num_key_value_heads": 4, "intermediate_size": r.randrange(33, 150), "q_lora_rank": r.choice((16, 24)),
        "kv_lora_rank": r.choice((8, 16)), "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
        "moe_intermediate_size": 8 * r.randrange(3, 12), "first_k_dense_replace": 1,
    }  # fmt: skip


def _qwen3_moe(r: random.Random) -> Model:
    return {
        **_mixtral(r), "model_type": "qwen3_moe", "head_dim": 16, "moe_intermediate_size": 8 * r.randrange(3, 12),
        "num_experts": r.choice((2, 4)), "decoder_sparse_step": r.choice((1, 2)),
    }  # fmt: skip


def _falcon(r: random.Random) -> Model:
    heads = r.choice((2, 4))
    return {
        "model_type": "falcon", "hidden_size": heads * r.choice((8, 16, 24)), "num_attention_heads": heads,
        "bias": r.random() < 0.5, "parallel_attn": r.random() < 0.5, "multi_query": r.random() < 0.5,
    }  # fmt: skip


def _bloom(r: random.Random) -> Model:
    heads = r.choice((2, 4))
    return {"model_type": "bloom", "hidden_size": heads * r.choice((8, 16, 24)), "n_head": heads}


def _gptj(r: random.Random) -> Model:
    heads = r.choice((2, 4))
    return {
        "model_type": "gptj", "n_embd": heads * 16, "n_head": heads, "rotary_dim": 8, "n_positions": 128,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    }  # fmt: skip


def _like_llama(model_type: str, **fixed: Any) -> Callable[[random.Random], Model]:
    return lambda r: {**_llama(r), "model_type": model_type, **fixed}


FAMILIES: dict[str, Callable[[random.Random], Model]] = {
    "llama": _llama, "qwen3": _qwen3, "gemma2": _gemma2, "gpt2": _gpt2, "opt": _opt, "gpt_neox": _gpt_neox,
    "mixtral": _mixtral, "deepseek_v3": _deepseek_v3, "qwen3_moe": _qwen3_moe, "falcon": _falcon, "bloom": _bloom,
    "gptj": _gptj, "mistral": _like_llama("mistral"), "qwen2": _like_llama("qwen2"),
    "phi3": _like_llama("phi3", pad_token_id=0), "olmo2": _like_llama("olmo2"),
    "gemma": _like_llama("gemma", head_dim=16), "starcoder2": _like_llama("starcoder2"),
}  # fmt: skip
EAGER = ("gemma2", "deepseek_v3", "bloom")
"""Without torch's own attention in transformers, or not with every shape drawn here."""
FUSED_EXPERTS = ("mixtral", "qwen3_moe", "deepseek_v3")
"""With tensors of three dimensions, which ZenFlow does not take."""
LAYERS = {"gpt2": "n_layer", "gptj": "n_layer", "bloom": "n_layer"}
"""What the families that do not say num_hidden_layers call their layers."""


def model(r: random.Random) -> Model:
    drawn: Model = {"tie_word_embeddings": r.random() < 0.4, "vocab_size": r.randrange(61, 1500)}
    drawn |= FAMILIES[r.choice(list(FAMILIES))](r)
    layers = LAYERS.get(drawn["model_type"], "num_hidden_layers")
    low = 2 if drawn["model_type"] == "deepseek_v3" else 1
    return {**drawn, layers: r.randrange(low, 5)}


def precision(r: random.Random, stage: int, offloaded: bool) -> dict[str, Any]:
    """fp32, fp16 with a fixed loss scale (a dynamic one may skip steps) or bf16; other dtypes now and then."""
    name = r.choice(("fp32", "fp16", "bf16", "bf16"))
    section: dict[str, Any] = {"enabled": True}
    config: dict[str, Any] = {}
    if name == "fp16":
        section["loss_scale"] = 16
    if name == "bf16" and r.random() < 0.2:
        section["check_grad_overflow"] = r.random() < 0.5
    if name != "fp32":
        config[name] = section
        if offloaded and r.random() < 0.2:
            section[f"{name}_master_weights_and_grads"] = True
            if name == "bf16" and r.random() < 0.5:
                section["bf16_optimizer_states"] = True
        elif stage and r.random() < 0.4:
            config["data_types"] = {"grad_accum_dtype": "fp32"}
    if r.random() < 0.1:
        config["communication_data_type"] = r.choice(("fp32", "bf16"))
    return config


def optimizer_offload(r: random.Random, stage: int) -> dict[str, Any]:
    offload: dict[str, Any] = {"device": "cpu", "pin_memory": r.random() < 0.6}
    if stage == 3 and r.random() < 0.4:
        offload["ratio"] = r.choice((0.3, 0.5, 0.8))
    elif stage == 3 and r.random() < 0.3:
        offload |= {"device": "nvme", "nvme_path": "/nvme", "buffer_count": r.choice((3, 4, 6))}
        offload |= {name: True for name in ("pipeline_read", "pipeline_write") if r.random() < 0.3}
    return offload


def parameter_offload(r: random.Random) -> dict[str, Any]:
    offload: dict[str, Any] = {"device": "cpu", "pin_memory": r.random() < 0.6}
    if r.random() < 0.4:
        offload |= {"device": "nvme", "nvme_path": "/nvme", "buffer_size": r.choice((3_000_000, 100_000_000))}
        offload |= {"max_in_cpu": r.choice((0, 50_000, 1_000_000_000)), "buffer_count": r.choice((3, 5))}
    return offload


def zero(r: random.Random, stage: int) -> dict[str, Any]:
    """The zero_optimization section: about half of the settings are left at their defaults."""
    section: dict[str, Any] = {"stage": stage}

    def maybe(name: str, *values: Any, chance: float = 0.5) -> None:
        if r.random() < chance:
            section[name] = r.choice(values)

    if stage == 0:
        return section
    maybe("reduce_bucket_size", *BUCKETS, chance=0.75)
    maybe("overlap_comm", True, False)
    maybe("contiguous_gradients", True, False, chance=0.4)
    maybe("reduce_scatter", True, False, chance=0.4)
    maybe("round_robin_gradients", True, False, chance=0.4)
    if stage < 3:
        maybe("parameter_alignment", True, chance=0.15)
        maybe("allgather_bucket_size", *BUCKETS[1:])
        maybe("use_multi_rank_bucket_allreduce", True, False)
    else:
        maybe("stage3_prefetch_bucket_size", 0, *BUCKETS, chance=0.7)
        maybe("stage3_param_persistence_threshold", 0, 100, 5_000, 1_000_000, chance=0.7)
        maybe("stage3_model_persistence_threshold", 0, 500, 20_000, chance=0.3)
        maybe("stage3_max_live_parameters", 0, 10_000, 100_000, 1_000_000_000)
        maybe("stage3_max_reuse_distance", 0, 10_000, 100_000, 1_000_000_000)
        maybe("sub_group_size", 1, 1_000, 30_000, 1_000_000_000)
        maybe("stage3_use_all_reduce_for_fetch_params", True, chance=0.1)
        maybe("stage3_allgather_sequential", True, chance=0.1)
    offload = r.random()
    if offload < 0.4:
        section["offload_optimizer"] = optimizer_offload(r, stage)
    if stage == 3 and offload < 0.2:
        section["offload_param"] = parameter_offload(r)
    if stage < 3 and "offload_optimizer" not in section:
        maybe("compute_grad_norm", False, chance=0.1)
    return section


def optimizer(r: random.Random, offloaded: bool) -> dict[str, Any]:
    """DeepSpeed's fused Adam mostly, torch's own sometimes."""
    parameters: dict[str, Any] = {"lr": 1e-5, "weight_decay": r.choice((0.0, 0.01))}
    if not offloaded and r.random() < 0.25:
        parameters["torch_adam"] = True
    elif not offloaded and r.random() < 0.1:
        return {"type": "SGD", "params": {"lr": 1e-5, "momentum": r.choice((0.0, 0.9))}}
    return {"type": r.choice(("AdamW", "Adam")), "params": parameters}


def under_muon(case: dict[str, Any]) -> dict[str, Any]:
    """The same case with Muon, as far as DeepSpeed runs it: nothing scattered at stage 3, no ratio, nothing on NVMe."""
    config = {**case["ds_config"], "optimizer": {"type": "Muon", "params": {"lr": 1e-5}}}
    section = {name: value for name, value in config["zero_optimization"].items() if name != "zero_hpz_partition_size"}
    if section["stage"] == 3:
        section["reduce_scatter"] = False
    for name in ("offload_optimizer", "offload_param"):
        if name in section:
            section[name] = {"device": "cpu", "pin_memory": section[name]["pin_memory"]}
    return {**case, "ds_config": {**config, "zero_optimization": section}, "freeze": None}


def swaps(section: dict[str, Any]) -> bool:
    """Whether anything goes to NVMe."""
    return any((section.get(name) or {}).get("device") == "nvme" for name in ("offload_optimizer", "offload_param"))


def draw(seed: int) -> dict[str, Any]:
    """One case, the same for the same seed."""
    r = random.Random(seed)  # noqa: S311 (draws, not secrets)
    stage, world = r.choice((0, 1, 1, 2, 2, 3, 3, 3)), r.choice(WORLDS)
    drawn = model(r)
    section = zero(r, stage)
    if swaps(section):  # partitions over 1 MiB are swapped, smaller ones are not
        drawn["vocab_size"] *= 40
        section["sub_group_size"] = r.choice((300_000, 2_000_000, 1_000_000_000))
    config: dict[str, Any] = {
        "zero_optimization": section,
        **precision(r, stage, "offload_optimizer" in section),
        "optimizer": optimizer(r, "offload_optimizer" in section),
        "gradient_accumulation_steps": r.choice((1, 1, 2, 3)),
    }
    if r.random() < 0.6:
        config["gradient_clipping"] = r.choice((0.0, 1.0))
    if section.get("compute_grad_norm") is False:
        config["gradient_clipping"] = 0.0
    if config["optimizer"]["type"] == "SGD":
        config["zero_allow_untested_optimizer"] = True
    case = {
        "seed": seed,
        "model": drawn,
        "ds_config": config,
        "world": world,
        "rank": r.choice(sorted({0, world // 2, world - 1})),
        "ranks_per_node": min(world, 8) if world % 8 == 0 else world,
        "seq": r.randrange(7, 60),
        "micro_batch": r.choice((1, 2, 3)),
        "steps": 3,
        "mode": "meta",
        "attention": "eager" if drawn["model_type"] in EAGER else r.choice(("eager", "sdpa")),
        "checkpointing": r.choice(("none", "none", "none", "full")),
        "optimizer": None,
        "zero_init": stage == 3 and r.random() < 0.2,
        "parameter_groups": r.choice((1, 1, 2, 3)),
        "freeze": ["*embed*", "*wte*"] if r.random() < 0.1 else None,
    }
    if stage == 3 and r.random() < 0.15 and (section.get("offload_param") or {}).get("device") != "nvme":
        section["zero_hpz_partition_size"] = r.choice(
            [size for size in range(2, world + 1) if world % size == 0] or [2]
        )
    if drawn["model_type"] not in FUSED_EXPERTS and world <= 8 and r.random() < 0.5:
        zenflow.draw(r, config)
    return case
