"""Configs, sizes and ways to run them for activations_torch_2.13.json: seeded, of every family that has a forward."""

import random

FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo", "olmo2", "starcoder2",
    "gpt2", "gpt_neox", "opt", "bloom", "falcon", "gptj", "gpt_bigcode", "phi", "mixtral", "qwen2_moe", "qwen3_moe",
    "deepseek_v2", "deepseek_v3", "gpt_oss", "bert",
)  # fmt: skip
EAGER_ONLY = {"gemma2", "bloom", "gpt_oss"}
"""transformers has no other attention for these, or none that computes the same."""
MULTI_HEAD = {"gpt2", "gpt_neox", "opt", "gptj", "gpt_bigcode", "bert"}
NO_FFN = {"bloom", "falcon"}
HEAD_OF_HIDDEN = {"gpt2", "gpt_neox", "opt", "bloom", "falcon", "gptj", "gpt_bigcode", "phi", "phi3", "bert"}
WINDOWED = {"mistral", "mixtral", "phi3", "gemma2", "gemma3_text", "gpt_oss", "starcoder2"}
ALSO_FULL = {"qwen2", "qwen3", "gemma3_text"}
"""Some layers have a window and others none."""
DROPOUTS = {
    "phi3": ("resid_pdrop",), "opt": ("dropout",), "phi": ("resid_pdrop", "embd_pdrop"),
    "gpt2": ("attn_pdrop", "resid_pdrop", "embd_pdrop"), "gptj": ("attn_pdrop", "resid_pdrop", "embd_pdrop"),
    "gpt_bigcode": ("attn_pdrop", "resid_pdrop", "embd_pdrop"), "gpt_neox": ("hidden_dropout", "attention_dropout"),
    "bloom": ("hidden_dropout", "attention_dropout"), "falcon": ("hidden_dropout", "attention_dropout"),
    "starcoder2": ("residual_dropout", "attention_dropout"), "llama": ("attention_dropout",),
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"), "qwen3": ("attention_dropout",), "gpt_oss": ("attention_dropout",), "deepseek_v3": ("attention_dropout",),
}  # fmt: skip
DTYPES = ("fp32", "bf16", "fp16")


def drawn_config(r, family):
    heads = r.choice([1, 2, 3, 4, 5, 6, 8])
    groups = r.choice([each for each in (1, 2, heads // 2, heads) if each and heads % each == 0])
    width = r.choice([8, 16, 24, 32, 40])
    c = {
        "model_type": family, "vocab_size": r.randint(50, 1500), "num_hidden_layers": r.choice([1, 2, 3]),
        "hidden_size": heads * width if family in HEAD_OF_HIDDEN or r.random() < 0.5 else r.randint(31, 170),
        "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": width,
        "intermediate_size": r.randint(17, 320),
    }  # fmt: skip
    if family in HEAD_OF_HIDDEN:
        del c["head_dim"]
    if r.random() < 0.4:
        c["tie_word_embeddings"] = r.random() < 0.5
    if family in WINDOWED:
        c["sliding_window"] = r.choice([4096, 16, 9])
    for name in DROPOUTS.get(family, ()):
        c[name] = 0.0
    if r.random() < 0.25:
        c.update(dict.fromkeys(DROPOUTS.get(family, ()), 0.1))
    globals().get(f"as_{family}", lambda r, c: None)(r, c)
    if family in MULTI_HEAD:
        del c["num_key_value_heads"]
    return c


def as_llama(r, c):
    heads, width = c["num_attention_heads"], c["head_dim"]
    if c["hidden_size"] % heads:  # transformers asks for a multiple even beside head_dim
        c["hidden_size"] = heads * width
    c.update(attention_bias=r.random() < 0.4, mlp_bias=r.random() < 0.4)
    if r.random() < 0.3:
        c["hidden_act"] = r.choice(["gelu", "gelu_new", "relu", "tanh", "quick_gelu"])


def as_qwen2(r, c):
    if r.random() < 0.4:
        c.update(use_sliding_window=True, sliding_window=r.choice([16, 4096]), max_window_layers=1)


def as_qwen3(r, c):
    as_qwen2(r, c)
    c["attention_bias"] = r.random() < 0.4


def as_gemma2(r, c):
    c["hidden_size"] = c["num_attention_heads"] * r.choice([8, 13, 20])


def as_gemma3_text(r, c):
    as_gemma2(r, c)
    c["sliding_window_pattern"] = 2


def as_phi3(r, c):
    c.update(partial_rotary_factor=r.choice([1.0, 1.0, 0.5]), pad_token_id=0)


def as_olmo(r, c):
    c.update(attention_bias=r.random() < 0.4, clip_qkv=r.choice([None, None, 1.0]))


def as_olmo2(r, c):
    c["attention_bias"] = r.random() < 0.4


def as_starcoder2(r, c):
    c["use_bias"] = r.random() < 0.7


def as_gpt2(r, c):
    c.update(n_inner=c.pop("intermediate_size"), n_positions=256, reorder_and_upcast_attn=r.random() < 0.2)


def as_gpt_bigcode(r, c):
    c.update(n_inner=c.pop("intermediate_size"), n_positions=256, multi_query=r.random() < 0.6)


def as_gpt_neox(r, c):
    c.update(use_parallel_residual=r.random() < 0.6, attention_bias=r.random() < 0.7)


def as_opt(r, c):
    c.update(ffn_dim=c.pop("intermediate_size"), do_layer_norm_before=r.random() < 0.8)
    c["word_embed_proj_dim"] = r.choice([16, *[c["hidden_size"]] * 4])
    c["activation_function"] = r.choice(["relu", "relu", "gelu"])


def as_bloom(r, c):
    del c["num_key_value_heads"], c["intermediate_size"]
    c.update(n_layer=c.pop("num_hidden_layers"), n_head=c.pop("num_attention_heads"))
    c["apply_residual_connection_post_layernorm"] = r.random() < 0.3


def as_falcon(r, c):
    groups = c.pop("num_key_value_heads")
    del c["intermediate_size"]
    c.update(r.choice([
        {}, {"new_decoder_architecture": True, "num_kv_heads": groups}, {"alibi": True},
        {"multi_query": False, "parallel_attn": False, "bias": True},
    ]))  # fmt: skip


def as_gptj(r, c):
    c.update(n_embd=c.pop("hidden_size"), n_layer=c.pop("num_hidden_layers"), n_head=c.pop("num_attention_heads"))
    c.update(n_inner=c.pop("intermediate_size"), rotary_dim=8, n_positions=256)


def as_phi(r, c):
    c.update(partial_rotary_factor=0.5, qk_layernorm=r.random() < 0.4)


def as_mixtral(r, c):
    c.update(num_local_experts=r.choice([4, 5, 8]), num_experts_per_tok=r.choice([1, 2, 3]))
    aligned(c)


def as_gpt_oss(r, c):
    as_mixtral(r, c)


def as_qwen3_moe(r, c):
    c.update(num_experts=r.choice([4, 5, 8]), num_experts_per_tok=r.choice([1, 2, 3]))
    c.update(moe_intermediate_size=8 * r.randint(2, 9), norm_topk_prob=r.random() < 0.5)
    aligned(c)


def as_qwen2_moe(r, c):
    as_qwen3_moe(r, c)
    c["shared_expert_intermediate_size"] = r.randint(17, 72)


def as_deepseek_v3(r, c):
    del c["head_dim"]
    c.update(
        num_key_value_heads=c["num_attention_heads"], q_lora_rank=r.choice([None, 24, 40]),
        kv_lora_rank=r.choice([16, 32]), qk_nope_head_dim=r.choice([16, 24]), qk_rope_head_dim=r.choice([8, 16]),
        v_head_dim=r.choice([16, 24, 32]), moe_intermediate_size=8 * r.randint(2, 9), n_routed_experts=8,
        num_experts_per_tok=r.choice([1, 2]), n_shared_experts=r.choice([1, 2]),
        first_k_dense_replace=r.choice([0, 1]), n_group=2, topk_group=1, norm_topk_prob=r.random() < 0.7,
    )  # fmt: skip
    aligned(c)


def as_deepseek_v2(r, c):
    as_deepseek_v3(r, c)
    c["hidden_size"] = 8 * c["num_attention_heads"] * r.choice([1, 2, 3])
    c["topk_method"] = r.choice(["greedy", "group_limited_greedy"])


def as_bert(r, c):
    c["is_decoder"] = r.random() < 0.3
    c["hidden_act"] = r.choice(["gelu", "gelu", "relu", "gelu_new"])


def aligned(c):
    """The grouped product takes rows of whole 16 bytes only."""
    for name in ("hidden_size", "intermediate_size"):
        c[name] = max(8, c[name] // 8 * 8)


def drawn_case(r, family):
    c = drawn_config(r, family)
    case = {
        "config": c, "batch": r.choice([1, 1, 2, 3, 4]), "seq": r.randint(5, 100), "dtype": r.choice(DTYPES),
        "attention": "eager" if family in EAGER_ONLY else r.choice(["eager", "sdpa", "sdpa"]),
        "device": r.choice(["cpu", "meta"]), "kernel": None, "checkpointing": r.random() < 0.4,
    }  # fmt: skip
    if case["device"] == "meta" and case["attention"] == "sdpa":
        kernels = cuda_kernels(case)
        case["kernel"] = r.choice(kernels) if kernels else None
        case["device"] = "meta" if kernels else "cpu"
    return case


def cuda_kernels(case):
    """Kernels that CUDA would run this with (ATen/native/transformers/cuda/sdp_utils.cpp)."""
    c, family = case["config"], case["config"]["model_type"]
    window = c.get("sliding_window") or c.get("alibi") or 0
    masked = family == "falcon" or (window and case["seq"] >= window)
    heads = c.get("num_attention_heads")
    groups = 1 if family == "gpt_bigcode" and c["multi_query"] else c.get("num_key_value_heads", heads)
    kernels = []
    if family == "falcon" and not (c.get("new_decoder_architecture") or c.get("multi_query") is False):
        return []  # one key head for all queries: math only
    if groups == heads or family == "falcon" or (masked and family not in ALSO_FULL):
        kernels.append("efficient")
    if case["dtype"] != "fp32" and not family.startswith("deepseek"):
        kernels += ["cudnn"] if masked else ["cudnn", "flash"]
    return kernels


def drawn_cases(family, seed):
    """Without an end."""
    r = random.Random(f"{family} {seed}")
    while True:
        yield drawn_case(r, family)
