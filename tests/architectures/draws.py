"""Seeded random config.json files of every family: odd sizes, fields left out, null or under another name."""

from __future__ import annotations

import random
from typing import Any

Draw = dict[str, Any]
ACTS = ["silu", "gelu", "gelu_new", "relu", "gelu_pytorch_tanh", "relu2", "tanh"]
ROTARY = {
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2",
    "gemma3_text", "phi", "phi3", "gpt_neox", "falcon", "starcoder2", "deepseek_v2", "deepseek_v3", "gpt_oss",
    "olmo", "olmo2",
}  # fmt: skip
DIVIDES = {
    "llama", "gemma2", "gemma3_text", "gpt_neox", "deepseek_v2", "gpt2", "gptj", "opt", "bloom", "falcon",
    "gpt_bigcode", "bert",
}  # fmt: skip
GROUPED = {
    "llama": None, "mistral": 8, "mixtral": 8, "qwen2": 32, "qwen2_moe": 16, "qwen3": 32, "qwen3_moe": 4,
    "gemma": 16, "gemma2": 4, "gemma3_text": 4, "phi": None, "phi3": None, "starcoder2": 2, "gpt_oss": 8,
    "olmo": None, "olmo2": None,
}  # fmt: skip
NULL_KV = {"llama", "qwen2", "qwen3", "phi", "phi3", "olmo", "olmo2"}
NULL_HEAD_DIM = {"llama", "mistral", "mixtral", "starcoder2", "deepseek_v2"}
DEFAULT_HEAD_DIM = {"qwen3": 128, "gemma": 256, "gemma2": 256, "gemma3_text": 256, "gpt_oss": 64}
GPT = {"gpt2", "gptj", "gpt_bigcode"}

OPTIONS: dict[str, dict[str, list[Any]]] = {
    "llama": {"attention_bias": [True, False], "mlp_bias": [True, False], "attention_dropout": [None, 0]},
    "mistral": {"sliding_window": [None, 16], "attention_bias": [True]},
    "mixtral": {"sliding_window": [None, 16], "num_local_experts": [1, 3, 8], "num_experts": [2, 5]},
    "qwen2": {"use_sliding_window": [True, False], "sliding_window": [None, 8], "max_window_layers": [0, 1]},
    "qwen2_moe": {
        "num_experts": [0, 1, 5], "moe_intermediate_size": [7, 24], "qkv_bias": [True, False],
        "shared_expert_intermediate_size": [9, 40],
        "decoder_sparse_step": [1, 2, 3], "mlp_only_layers": [None, [], [0], [1, 2]],
        "use_sliding_window": [True], "max_window_layers": [0, 2],
    },
    "qwen3": {"attention_bias": [True, False], "use_sliding_window": [True], "max_window_layers": [1]},
    "qwen3_moe": {
        "num_experts": [0, 2, 5], "num_local_experts": [0, 3], "moe_intermediate_size": [7, 24],
        "decoder_sparse_step": [1, 2], "mlp_only_layers": [None, [0]], "attention_bias": [True, False],
    },
    "gemma": {"attention_bias": [True], "hidden_activation": ["tanh", None], "pad_token_id": [None, 3]},
    "gemma2": {
        "attention_bias": [True], "final_logit_softcapping": [None, 20.0],
        "use_bidirectional_attention": [None], "query_pre_attn_scalar": [64],
    },
    "gemma3_text": {
        "attention_bias": [True], "sliding_window_pattern": [1, 2, 3],
        "use_bidirectional_attention": [True, None],
    },
    "phi": {"qk_layernorm": [True, False], "partial_rotary_factor": [0.4, 0.75, 1.0]},
    "phi3": {"partial_rotary_factor": [0.5, 1.0], "sliding_window": [None, 8]},
    "gpt2": {"add_cross_attention": [True, False], "head_dim": [5], "num_key_value_heads": [3]},
    "gptj": {"rotary_dim": [2, 5, 8]},
    "gpt_bigcode": {"multi_query": [True, False], "num_key_value_heads": [2]},
    "gpt_neox": {
        "attention_bias": [True, False], "use_parallel_residual": [False], "rotary_pct": [0.3, 1.0],
        "rotary_emb_base": [500], "rope_theta": [77.0], "partial_rotary_factor": [0.6], "head_dim": [6],
    },
    "opt": {
        "ffn_dim": [17, 64], "intermediate_size": [99], "word_embed_proj_dim": [None, 12, 33],
        "do_layer_norm_before": [True, False], "_remove_final_layer_norm": [True, False],
        "layer_norm_elementwise_affine": [True, False], "enable_bias": [True, False],
        "pad_token_id": [None, 0],
    },
    "bloom": {"n_embed": [None, 48], "n_inner": [7], "apply_residual_connection_post_layernorm": [True]},
    "falcon": {
        "new_decoder_architecture": [True, False, None], "multi_query": [True, False, None],
        "parallel_attn": [True, True, False, None], "bias": [True, False, None], "alibi": [True, None],
        "num_ln_in_parallel_attn": [None, 1, 2], "ffn_hidden_size": [None, 31], "intermediate_size": [5],
        "n_embed": [None], "n_head": [3], "n_layer": [9], "n_head_kv": [2], "hidden_dropout": [None, 0.2],
    },
    "starcoder2": {"use_bias": [True, False], "sliding_window": [None, 8], "embedding_dropout": [0.2]},
    "deepseek_v2": {
        "n_routed_experts": [1, 4], "num_experts": [3], "num_local_experts": [6],
        "n_shared_experts": [0, 1, 3],
        "moe_intermediate_size": [6, 11], "first_k_dense_replace": [0, 1, 9], "q_lora_rank": [None, 12],
        "mlp_bias": [True, False], "attention_bias": [True, False], "num_key_value_heads": [None, 3],
        "num_experts_per_tok": [None, 2], "norm_topk_prob": [None, True],
    },
    "deepseek_v3": {
        "n_routed_experts": [1, 4], "num_experts": [3], "num_local_experts": [6],
        "n_shared_experts": [0, 1, 3],
        "moe_intermediate_size": [6, 11], "first_k_dense_replace": [0, 1, 9], "q_lora_rank": [None, 12],
        "mlp_bias": [True], "attention_bias": [True, False], "num_key_value_heads": [None, 3],
        "head_dim": [6], "num_nextn_predict_layers": [1], "num_mtp_layers": [0], "n_group": [None, 1],
    },
    "gpt_oss": {
        "num_local_experts": [1, 3], "num_experts": [4], "attention_bias": [True, False],
        "sliding_window": [None, 9],
    },
    "olmo": {"attention_bias": [True, False], "clip_qkv": [None, 8.0], "pad_token_id": [None]},
    "olmo2": {"attention_bias": [True, False], "pad_token_id": [-1]},
    "bert": {
        "type_vocab_size": [1, 3], "add_cross_attention": [True, False], "num_key_value_heads": [5],
        "pad_token_id": [None],
    },
}  # fmt: skip


def draw(family: str, seed: int) -> Draw:
    """One config.json. Most are valid; some are refused, by transformers too."""
    rng = random.Random(f"{family} {seed}")
    config: Draw = {
        "model_type": family,
        "torch_dtype": "float32",
        "architectures": ["X"],
        "unknown": {"a": 1},
    }
    config["vocab_size"] = rng.randint(40, 130)
    if family in ("phi3",) and rng.random() < 0.9:
        config["pad_token_id"] = rng.choice([None, 2])
    sizes(config, family, rng)
    for name, values in OPTIONS[family].items():
        if rng.random() < 0.5:
            config[name] = rng.choice(values)
    if config.get("add_cross_attention"):
        config.setdefault("is_decoder", True)
        if rng.random() < 0.8:
            config["multi_query"] = False
    if rng.random() < 0.6:
        config["tie_word_embeddings"] = rng.random() < 0.5
    positions(config, family, rng)
    if family in ROTARY:
        ropes(config, family, rng)
    items = list(config.items())
    rng.shuffle(items)
    return dict(items)


def sizes(config: Draw, family: str, rng: random.Random) -> None:
    heads = rng.choice([1, 2, 3, 4, 6, 8, 12])
    width = rng.choice([2, 4, 4, 6, 8, 10, 10, 12, 16, 5])
    hidden = heads * width
    if family not in DIVIDES and rng.random() < 0.3:
        hidden += rng.randint(1, 5)
    layers = rng.randint(1, 4)
    if family == "falcon":
        divisors = [n for n in range(1, heads + 1) if heads % n == 0]
        config["num_kv_heads"] = rng.choice([None, *divisors])
    if family in GROUPED:
        grouped(config, family, heads, rng)
    if family.startswith("deepseek"):
        config |= {
            "kv_lora_rank": rng.randint(3, 20), "qk_nope_head_dim": rng.randint(2, 9),
            "v_head_dim": rng.randint(2, 9), "qk_rope_head_dim": rng.choice([2, 4, 6, 8, 10]),
        }  # fmt: skip
        if family == "deepseek_v2" and rng.random() < 0.3:
            config["head_dim"] = rng.choice([None, 7])
    spell(config, family, rng, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads)
    if family in GPT:
        if rng.random() < 0.6:
            config["n_inner"] = rng.choice([None, rng.randint(3, 90)])
    elif family not in ("opt", "bloom", "falcon"):
        config["intermediate_size"] = rng.randint(3, 90)
    act = {"gpt2": "activation_function", "falcon": "activation", "opt": "activation_function"}.get(
        family, "hidden_act"
    )
    if rng.random() < 0.5:
        config[act] = rng.choice(ACTS)


def grouped(config: Draw, family: str, heads: int, rng: random.Random) -> None:
    default = GROUPED[family]
    divisors = [n for n in range(1, heads + 1) if heads % n == 0]
    choices: list[Any] = [*divisors, *divisors]
    if default is None or heads % default == 0:
        choices.append("left out")
    if family in NULL_KV:
        choices.append(None)
    if (chosen := rng.choice(choices)) != "left out":
        config["num_key_value_heads"] = chosen
    if family in DEFAULT_HEAD_DIM:
        if rng.random() < 0.9:
            config["head_dim"] = rng.choice([2, 4, 6, 12, 18])
    elif rng.random() < 0.35:
        config["head_dim"] = rng.choice([2, 6, 14, 3, *([None] if family in NULL_HEAD_DIM else [])])


SPELLINGS = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}


def spell(config: Draw, family: str, rng: random.Random, **values: int) -> None:
    """Under transformers' name, the family's, or both with the family's one to be overruled."""
    for name, value in values.items():
        other = SPELLINGS[name] if family in GPT or (family == "bloom" and name != "hidden_size") else None
        if other is None:
            config[name] = value
            continue
        how = rng.random()
        if how < 0.5:
            config[other] = value
        else:
            config[name] = value
            if how > 0.8:
                config[other] = value * 3


def positions(config: Draw, family: str, rng: random.Random) -> None:
    if rng.random() < 0.6 or family in ("gpt_bigcode", "gptj", "bert"):
        name = rng.choice(["n_positions", "max_position_embeddings"]) if family in GPT else "max_position_embeddings"
        config[name] = rng.randint(5, 200)
    layers = config.get("num_hidden_layers", config.get("n_layer", 2))
    if family in ROTARY and rng.random() < 0.15:
        kinds = ["full_attention", "sliding_attention", "attention"]
        config["layer_types"] = [rng.choice(kinds) for _ in range(layers + (rng.random() < 0.1))]


KINDS = ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional", "su", "mrope"]
LONG_KINDS = ["default", "longrope", "longrope", "yarn", "su", "linear"]


def rotated_pairs(config: Draw) -> int:
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(head * config.get("partial_rotary_factor", 1.0)) // 2


def ropes(config: Draw, family: str, rng: random.Random) -> None:
    how = rng.random()
    if how < 0.35:
        return
    kind = rng.choice(LONG_KINDS if family == "phi3" else KINDS)
    settings: Draw = {rng.choice(["type", "rope_type"]): kind}
    if kind in ("linear", "dynamic", "yarn", "llama3") or rng.random() < 0.2:
        settings["factor"] = rng.choice([2, 4.0])
    if kind == "llama3":
        settings |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4}
    if kind in ("longrope", "su"):
        count = rng.choice([rng.randint(1, 8), rotated_pairs(config)])
        settings |= {"short_factor": [1.0] * count, "long_factor": [2] * count}
    if rng.random() < 0.2 and family != "phi3":
        settings["partial_rotary_factor"] = rng.choice([0.25, 0.5, 0.7])
    if rng.random() < 0.3:
        settings["rope_theta"] = 5000.0
    if rng.random() < 0.2 and family != "phi3":
        config["partial_rotary_factor"] = 0.5
    name = "rope_scaling" if how < 0.7 else "rope_parameters"
    if family == "gemma3_text" and name == "rope_parameters":
        settings = {
            "full_attention": settings,
            "sliding_attention": rng.choice([None, {"rope_type": "default"}]),
        }
        config.pop("layer_types", None)  # with former names in it, transformers does not complete nested settings
    if family == "starcoder2" and config.get("head_dim", 0) is None:
        del config["head_dim"]  # an explicit null and yarn: transformers fails, here it is read as left out
    config[name] = settings
