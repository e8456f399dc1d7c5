"""What training steps of transformers hold, measured by torch, into activations_torch_2.13.json.

python tests/references/make_activation_reference.py [CASES_A_FAMILY [SEED]]

A case is one forward and backward of a small model with random weights: on the CPU, or on torch's meta device with
one of CUDA's attention kernels called in place of the choice that torch makes. Every operator is watched: the bytes
of each storage that it makes count until that storage is freed. Parameters, buffers and token ids are left out, and
a parameter's gradient is dropped as soon as it is whole. Needs torch and transformers.
"""

import gc
import json
import random
import sys
import warnings
import weakref
from contextlib import contextmanager, nullcontext
from datetime import date
from functools import partial
from pathlib import Path

TARGET = Path(__file__).with_name("activations_torch_2.13.json")
FAMILIES = (
    "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo", "olmo2", "starcoder2",
    "gpt2", "gpt_neox", "opt", "bloom", "falcon", "gptj", "gpt_bigcode", "phi", "mixtral", "qwen2_moe", "qwen3_moe",
    "deepseek_v2", "deepseek_v3", "gpt_oss",
)  # fmt: skip
EAGER_ONLY = {"gemma2", "bloom", "gpt_oss", "gptj"}
"""transformers has no other attention for these, or none that computes the same."""
MULTI_HEAD = {"gpt2", "gpt_neox", "opt", "gptj", "gpt_bigcode"}
NO_FFN = {"bloom", "falcon"}
HEAD_OF_HIDDEN = {"gpt2", "gpt_neox", "opt", "bloom", "falcon", "gptj", "gpt_bigcode", "phi", "phi3"}
WINDOWED = {"mistral", "mixtral", "phi3", "gemma2", "gemma3_text", "gpt_oss", "starcoder2"}
ALSO_FULL = {"qwen2", "qwen3", "gemma3_text"}
"""Some layers have a window and others none."""
DROPOUTS = {
    "phi3": ("resid_pdrop",), "opt": ("dropout",), "phi": ("resid_pdrop", "embd_pdrop"),
    "gpt2": ("attn_pdrop", "resid_pdrop", "embd_pdrop"), "gptj": ("attn_pdrop", "resid_pdrop", "embd_pdrop"),
    "gpt_bigcode": ("attn_pdrop", "resid_pdrop", "embd_pdrop"), "gpt_neox": ("hidden_dropout", "attention_dropout"),
    "bloom": ("hidden_dropout", "attention_dropout"), "falcon": ("hidden_dropout", "attention_dropout"),
    "starcoder2": ("residual_dropout", "attention_dropout"), "llama": ("attention_dropout",),
    "qwen3": ("attention_dropout",), "gpt_oss": ("attention_dropout",), "deepseek_v3": ("attention_dropout",),
}  # fmt: skip
WIDTHS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


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


def aligned(c):
    """The grouped product takes rows of whole 16 bytes only."""
    for name in ("hidden_size", "intermediate_size"):
        c[name] = max(8, c[name] // 8 * 8)


def drawn_case(r, family):
    c = drawn_config(r, family)
    case = {
        "config": c, "batch": r.choice([1, 1, 2, 3, 4]), "seq": r.randint(5, 100), "dtype": r.choice(list(WIDTHS)),
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


def watched():
    """A mode that counts the bytes of every storage that operators make, until it is freed."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten

    class Live(TorchDispatchMode):
        def __init__(self, device, ignored):
            super().__init__()
            self.device, self.ignored = device, {t.untyped_storage()._cdata for t in ignored}
            self.sizes, self.refs = {}, {}
            self.live = self.peak = 0

        def died(self, key, _ref):
            self.live -= self.sizes.pop(key)
            del self.refs[key]

        def count(self, tensor):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key in self.sizes or key in self.ignored or tensor.device.type != self.device:
                return
            self.sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.refs[key] = weakref.ref(storage, partial(self.died, key))

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = computed(func, args, kwargs or {})
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(tensor, torch.Tensor):
                    self.count(tensor)
            self.peak = max(self.peak, self.live)
            return out

    def computed(func, args, kwargs):
        first = args[0] if args else None
        if not isinstance(first, torch.Tensor) or first.device.type != "meta":
            return func(*args, **kwargs)
        if func is aten._local_scalar_dense.default:  # a number read off a tensor without any
            return True if first.dtype == torch.bool else 1.0 if first.is_floating_point() else 0
        if func is aten._grouped_mm.default and first.dtype != torch.bfloat16:  # its meta function knows bf16 only
            half = [a.bfloat16() if isinstance(a, torch.Tensor) and a.dtype == first.dtype else a for a in args]
            made = func(*half, **kwargs)
            return torch.empty_strided(made.size(), made.stride(), dtype=first.dtype, device="meta")
        return func(*args, **kwargs)

    return Live


@contextmanager
def cuda_operators(kernel):
    """On the meta device torch would choose other operators: these are CUDA's attention kernel and dropout.

    scaled_dot_product_attention does to a mask what torch does (ATen/native/transformers/attention.cpp).
    """
    import torch
    import torch.nn.functional as F

    aten, before = torch.ops.aten, (F.scaled_dot_product_attention, F.dropout)

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if attn_mask is not None and attn_mask.dtype == torch.bool:  # convert_boolean_attn_mask
            hidden = torch.scalar_tensor(float("-inf"), dtype=q.dtype, device=q.device)
            attn_mask = torch.where(attn_mask, 0.0, hidden)
            del hidden
        if kernel == "flash":
            assert attn_mask is None
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
        if kernel == "efficient":
            if attn_mask is not None:  # preprocess_mask
                seq = attn_mask.shape[-1]
                attn_mask = F.pad(attn_mask, (0, 8 - seq % 8))[..., :seq] if seq % 8 else attn_mask
                attn_mask = attn_mask.expand(*q.shape[:3], seq)
            run = partial(aten._scaled_dot_product_efficient_attention, q, k, v, attn_mask, True)
            return run(dropout_p, is_causal, scale=scale)[0]
        assert kernel == "cudnn"
        run = partial(aten._scaled_dot_product_cudnn_attention, q, k, v, attn_mask, True)
        return run(dropout_p, is_causal, False, scale=scale)[0]

    def dropout(x, p=0.5, training=True, inplace=False):
        return aten.native_dropout(x, p, True)[0] if p and training else x

    F.scaled_dot_product_attention, F.dropout = attention, dropout
    try:
        yield
    finally:
        F.scaled_dot_product_attention, F.dropout = before


def drop_gradient(parameter):
    parameter.grad = None


def built(case):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(case["config"])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.use_cache = False
    dtype = getattr(torch, WIDTHS[case["dtype"]])
    with torch.device(case["device"]):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=case["attention"])
    if case["checkpointing"]:
        model.activation_checkpointing_enable()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(drop_gradient)
    return model.train(), config.vocab_size


def measured(case):
    """The case with bytes saved for backward, and at most in forward and in backward."""
    import torch

    model, vocabulary = built(case)
    shape, device = (case["batch"], case["seq"]), case["device"]
    ids = torch.zeros(shape, dtype=torch.int64, device=device)
    if device == "cpu":
        ids.random_(0, vocabulary)
    live = watched()(device, [*model.parameters(), *model.buffers(), ids])
    with cuda_operators(case["kernel"]) if device == "meta" else nullcontext():
        gc.collect()
        gc.disable()  # only what nothing refers to any more is freed
        try:
            with live:
                loss = model(input_ids=ids, labels=ids).loss
                saved, forward = live.live, live.peak
                live.peak = live.live
                loss.backward()
        finally:
            gc.enable()
    return {**case, "saved": saved, "forward_peak": forward, "backward_peak": live.peak}


def runs(case):
    """Whether transformers takes the config."""
    try:
        return measured(case)
    except Exception as refusal:
        if type(refusal).__name__ == "StrictDataclassClassValidationError":
            return None
        raise


def cases(number, seed):
    for family in FAMILIES:
        r, found = random.Random(f"{family} {seed}"), 0
        while found < number:
            case = runs(drawn_case(r, family))
            if case:
                found += 1
                yield case


def head():
    import torch
    import transformers

    return {
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "python": sys.version.split()[0]},
        "date": date.today().isoformat(),
        "saved": "bytes that live between forward and backward",
        "forward_peak": "most bytes in forward",
        "backward_peak": "most bytes in backward, parameters' gradients dropped when they are whole",
    }  # fmt: skip


def main(number="16", seed="1"):
    warnings.simplefilter("ignore")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases(int(number), int(seed)))
    fields = "".join(f'"{name}": {json.dumps(value)},\n' for name, value in head().items())
    TARGET.write_text(f'{{\n{fields}"measured": [\n{lines}\n]\n}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
