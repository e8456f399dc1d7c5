"""Sizes in a config.json of any decoder, by the names that families have for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.architectures.config import LARGEST_WIDTH, MAX_LAYERS
from zeroplan.architectures.registry import FAMILIES
from zeroplan.errors import SpecError, shown

NAMES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "n_embed", "model_dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels", "attention_head_size"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff", "ffn_embed_dim"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "max_position_embeddings": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "experts_per_token"),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_intermediate_size", "moe_ffn_hidden_size"),
    "n_shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": ("shared_expert_intermediate_size", "shared_intermediate_size"),
    "first_k_dense_replace": ("first_k_dense_replace", "num_dense_layers"),
    "decoder_sparse_step": ("decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step", "moe_layer_interval"),
}
"""The name used here -> those that config.json may have, the first that it has counts."""
ACTIVATION = ("hidden_act", "hidden_activation", "activation_function", "activation")
GATED = ("chatglm", "qwen")
"""Families whose MLPs are gated though no key says so, by the code of their repositories (modeling_chatglm.py,
modeling_qwen.py).
"""
HALVED = ("qwen",)
"""Families whose intermediate_size is that of gate_proj and up_proj together; their norms are RMSNorm, and q_proj,
k_proj and v_proj have biases.
"""
OTHER_LAYERS = (
    "ssm", "mamba", "conv", "linear_attn", "linear_num", "linear_key", "linear_value", "lru_", "rwkv", "retention",
    "recurrent", "state_size", "time_step", "encoder_", "decoder_layers", "image_", "vision_", "visual", "patch_",
    "audio_", "num_mel_bins", "relative_attention", "num_hidden_groups", "type_vocab_size",
    "alibi", "parallel_attn", "new_decoder_architecture", "swiglu_",
)  # fmt: skip
"""Beginnings of keys of models that are no plain decoders: state spaces, linear attention, encoders, images,
attention of its own (Falcon's, gpt-oss's)."""
OTHER_NAMES = ("mamba", "rwkv", "lstm", "hyena", "retnet", "t5", "bart", "whisper", "bert", "vit", "clip")
"""Parts of their model_type."""
OTHER_TYPES = ("linear_attention", "mamba", "conv", "recurrent", "hybrid")


class Sizes:
    """The numbers of one file."""

    def __init__(self, content: Mapping[str, Any], place: str) -> None:
        self.content, self.place = content, place

    def count(self, name: str) -> int:
        """The size of that name, or 0. Raises `SpecError` for what is none."""
        for key in NAMES.get(name, (name,)):
            value = self.content.get(key)
            if value is None:
                continue
            most = MAX_LAYERS if name == "num_hidden_layers" else LARGEST_WIDTH
            if type(value) is not int or not 0 <= value <= most:
                raise SpecError(self.place, f"{key} = {shown(value)}", f"a whole number up to {most:,}")
            return value
        return 0

    def needed(self, name: str) -> int:
        """The size of that name. Raises `SpecError` where there is none."""
        if value := self.count(name):
            return value
        raise SpecError(
            self.place, f"model_type = {shown(self.content['model_type'])} without {name}",
            f"that size, to plan it by its sizes, or a family that is described: {', '.join(FAMILIES)}",
        )  # fmt: skip

    def probability(self, *names: str) -> float:
        """The first of these dropouts, or 0."""
        value = next((self.content[name] for name in names if self.content.get(name) is not None), 0.0)
        return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else 0.0

    def flag(self, name: str) -> bool:
        """Whether it is true; left out or null, it is not. Raises `SpecError` for what is no boolean."""
        value = self.content.get(name)
        if not isinstance(value, bool | None):
            raise SpecError(self.place, f"{name} = {shown(value)}", "true or false")
        return bool(value)

    def number(self, name: str) -> float | None:
        """A positive number of that name."""
        value = self.content.get(name)
        return float(value) if isinstance(value, int | float) and 0 < value <= LARGEST_WIDTH else None

    def check_decoder(self) -> None:
        """Refuse what is no decoder of attention and MLPs. Raises `SpecError`."""
        model_type, types = str(self.content["model_type"]), self.content.get("layer_types")
        other = next((key for key, value in self.content.items() if value and key.startswith(OTHER_LAYERS)), "")
        if self.content.get("is_encoder_decoder") is True:
            other = "is_encoder_decoder: true"
        if isinstance(types, list):
            other = next((f"layer_types of {kind}" for kind in OTHER_TYPES if kind in types), other)
        if self.content.get("quantization_bit"):
            other = "quantization_bit"
        if self.content.get("attn_layer_period") or self.content.get("hybrid_override_pattern"):
            other = "layers of several kinds"
        if other or any(part in model_type.lower() for part in OTHER_NAMES):
            raise SpecError(
                self.place, f"model_type = {shown(model_type)}{f' with {other}' if other else ''}",
                f"a decoder of attention and MLPs, or a family that is described: {', '.join(FAMILIES)}",
            )  # fmt: skip

    def has_rms_norm(self) -> bool:
        """By the key that its epsilon has; a file with neither has Llama's."""
        plain = any("layer_norm" in key or "layernorm" in key or key == "norm_epsilon" for key in self.content)
        if self.content.get("rmsnorm") is True or self.content.get("model_type") in HALVED:
            return True
        return self.content.get("rms_norm_eps") is not None or not plain

    def is_gated(self) -> bool:
        """Swish gates, and so does whatever stands beside an RMSNorm; GELU beside a LayerNorm does not."""
        act = [self.content.get(name) for name in ACTIVATION]
        if self.content.get("model_type") in GATED:
            return True
        if any(isinstance(each, str) and ("glu" in each or each in ("silu", "swish")) for each in act):
            return True
        plain = self.count("n_inner") or not any(name in self.content for name in NAMES["intermediate_size"][:1])
        return self.content.get("rms_norm_eps") is not None or (self.has_rms_norm() and not plain)

    def has_biases(self, rms_norm: bool) -> bool:
        """What the file says, or else as LayerNorm's families have them."""
        for name in ("use_bias", "bias", "enable_bias", "add_bias_linear"):
            if isinstance(self.content.get(name), bool):
                return bool(self.content[name])
        return not rms_norm and self.content.get("no_bias") is not True

    def biases_products(self) -> bool:
        stated = any(self.content.get(name) is True for name in ("attention_bias", "qkv_bias", "add_qkv_bias"))
        return stated or self.content.get("model_type") in HALVED

    def key_value_heads(self, heads: int) -> int:
        if self.content.get("multi_query") is True and self.content.get("new_decoder_architecture") is not True:
            return 1
        return self.count("num_key_value_heads") or heads

    def ffn(self, hidden: int, gated: bool, experts: int) -> int:
        """A plain MLP of no stated width is four times as wide as its input; experts alone need none."""
        if value := self.count("intermediate_size") or (self.expert_width() if experts else 0):
            return value // 2 if self.content.get("model_type") in HALVED else value
        return self.needed("intermediate_size") if gated else 4 * hidden

    def expert_width(self) -> int:
        return self.count("moe_intermediate_size") or self.needed("intermediate_size")

    def shared_width(self) -> int:
        """The width of all experts that every token is routed to, together."""
        shared = self.count("n_shared_experts") * self.expert_width()
        return self.count("shared_expert_intermediate_size") or shared
