"""The fields of Hugging Face's config.json that a family reads, with transformers 5.23's defaults.

Each family declares its own subclass. A field of `Config` that the subclass declares again is one that the
family reads; the others are there so that code for all families can name them, and what config.json says of
them is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from inspect import get_annotations
from math import isfinite
from typing import Any, ClassVar

from zeroplan.errors import SpecError, shown

MAX_LAYERS = 10_000
LARGEST_WIDTH = 1_000_000_000


@dataclass(kw_only=True, init=False, eq=False, repr=False)  # none is made, compared or shown, and each costs a start
class Config:
    """What every family has. Widths and counts are positive integers."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Field -> the names that config.json may give it, the winner last. Other fields have their own name."""
    divides_heads: ClassVar[bool] = False
    """transformers refuses this family's hidden_size unless num_attention_heads divides it."""
    may_be_zero: ClassVar[frozenset[str]] = frozenset()
    not_null: ClassVar[frozenset[str]] = frozenset()
    """Optional names that transformers cannot read as null: leaving them out is something else."""
    has_sdpa: ClassVar[bool] = True
    """transformers runs the family's attention through torch's fused kernels, unless told otherwise."""
    masks_always: ClassVar[bool] = False
    """transformers gives torch's attention the causal mask as a tensor, where others say that it is causal."""
    refused: ClassVar[frozenset[str]] = frozenset()
    """Names that transformers refuses in this family's config.json, whatever their value."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    max_position_embeddings: int | None = None
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    attention_dropout: float | None = 0.0
    residual_dropout: float | None = 0.0
    embedding_dropout: float | None = 0.0
    sliding_window: int | None = None
    layer_types: list[str] | None = None
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        self.derive()

    def derive(self) -> None:
        """Fill what config.json may leave out or set to null, as the family's transformers class does."""
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.layer_types is not None:
            self.layer_types = [FORMER_TYPES.get(kind, kind) for kind in self.layer_types]

    @property
    def own_attention(self) -> tuple[str, ...]:
        """Attentions that the family's layers compute themselves, not through transformers' AttentionInterface."""
        return ()

    @property
    def changes_products(self) -> str:
        """What the family's layers do to a product's result where it lies; empty for nothing."""
        return ""

    @property
    def no_flash(self) -> str:
        """Why transformers does not run it with the flash-attention package; empty where it does."""
        return ""

    @property
    def kv_heads(self) -> int:
        assert self.num_key_value_heads is not None
        return self.num_key_value_heads

    @property
    def head_width(self) -> int:
        """What one attention head holds: head_dim, or the heads' share of hidden_size."""
        if self.head_dim is not None:
            return self.head_dim
        return self.hidden_size // max(self.num_attention_heads, 1)

    @property
    def ffn(self) -> int:
        assert self.intermediate_size is not None
        return self.intermediate_size

    def each_layer(self, kind: Callable[[int], str]) -> list[str]:
        """The default of `layer_types`."""
        return [kind(index) for index in range(min(self.num_hidden_layers, MAX_LAYERS))]

    def validate(self, place: str) -> None:
        """Refuse what transformers refuses or cannot build. Raises `SpecError` that names `place`."""
        self.check_numbers(place)
        self.check_heads(place)
        self.check_names(place)

    def check_run(self, place: str) -> None:
        """Refuse what transformers builds and cannot run. Raises `SpecError` that names `place`."""

    def check_numbers(self, place: str) -> None:
        for name, value in vars(self).items():
            least = 0 if name in COUNTS or name in self.may_be_zero else 1
            if type(value) is int and value < least and name in POSITIVE | COUNTS:
                raise SpecError(place, f"{name} = {value}", f"a whole number from {least} up")
            if type(value) is int and value > LARGEST_WIDTH and name in POSITIVE | COUNTS:
                raise SpecError(place, f"{name} = {shown(value)}", f"at most {LARGEST_WIDTH:,}")
            if type(value) is float and not isfinite(value) and not (name in LIMITS and value > 0):
                raise SpecError(place, f"{self.names(name)[-1]} = {value}", "a finite number")
            if name in DROPOUTS and value is not None and not 0 <= value <= 1:
                raise SpecError(place, f"{name} = {value}", "a probability between 0 and 1")
        if self.num_hidden_layers > MAX_LAYERS:
            found = f"num_hidden_layers = {self.num_hidden_layers}"
            raise SpecError(place, found, f"at most {MAX_LAYERS} layers")
        pad = self.pad_token_id
        if pad is not None and not -self.vocab_size <= pad < max(self.vocab_size, 1):
            found = f"pad_token_id = {pad} with vocab_size = {self.vocab_size}"
            raise SpecError(place, found, "a row of the embedding, as torch does", "pad_token_id: null")

    def check_heads(self, place: str) -> None:
        heads = self.num_attention_heads
        if self.divides_heads and self.hidden_size % heads:
            found = f"hidden_size = {self.hidden_size} with num_attention_heads = {heads}"
            raise SpecError(place, found, "a hidden_size that the heads divide (transformers refuses it too)")
        if self.head_width <= 0:
            found = f"hidden_size = {self.hidden_size} with num_attention_heads = {heads}"
            raise SpecError(place, found, "heads of at least one element")
        self.check_groups(place)

    def check_groups(self, place: str) -> None:
        heads = self.num_attention_heads
        if self.kv_heads <= 0 or heads % self.kv_heads:
            found = f"num_key_value_heads = {self.kv_heads} with num_attention_heads = {heads}"
            raise SpecError(place, found, "key-value heads that divide the attention heads")

    def check_names(self, place: str) -> None:
        if self.hidden_act not in ACTIVATIONS:
            found = f"{self.names('hidden_act')[-1]} = {shown(self.hidden_act)}"
            raise SpecError(place, found, f"one of transformers' own: {', '.join(sorted(ACTIVATIONS))}")
        if self.layer_types is None:
            return
        if len(self.layer_types) != self.num_hidden_layers:
            found = f"{len(self.layer_types)} layer_types with num_hidden_layers = {self.num_hidden_layers}"
            raise SpecError(place, found, "one type a layer (transformers refuses it too)")
        for kind in self.layer_types:
            if kind not in LAYER_TYPES:
                known = ", ".join(sorted(LAYER_TYPES))
                raise SpecError(place, f"layer type {shown(kind)}", f"one of {known}")

    @classmethod
    def names(cls, field: str) -> tuple[str, ...]:
        """What config.json may call a field, the winner last."""
        return cls.aliases.get(field, (field,))

    @classmethod
    @cache
    def readable(cls) -> frozenset[str]:
        """The fields that this family reads."""
        below = [base for base in cls.__mro__ if issubclass(base, Config) and base is not Config]
        declared = {name for base in below for name in get_annotations(base)}
        return frozenset({field.name for field in fields(cls)} & (declared | {"layer_types"}))

    @classmethod
    def keys(cls) -> frozenset[str]:
        """What of config.json this family reads, under config.json's own names."""
        return frozenset(name for field in cls.readable() for name in cls.names(field))

    @classmethod
    def known(cls, config: Mapping[str, Any], place: str) -> dict[str, Any]:
        """What of config.json this family reads, under the names used here. Values keep their types."""
        for name in cls.refused & config.keys():
            raise SpecError(place, f"{name} = {shown(config[name])}", "no such field, as transformers does")
        for name in cls.not_null:
            if name in config and config[name] is None:
                raise SpecError(place, f"{name}: null", "a number, or no such field")
        result = {}
        for field in cls.readable():
            for name in cls.names(field):
                if name in config:
                    result[field] = config[name]
        return result


POSITIVE = frozenset({
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "head_dim", "intermediate_size", "max_position_embeddings", "num_experts", "num_experts_per_tok",
    "moe_intermediate_size", "shared_expert_intermediate_size", "decoder_sparse_step", "type_vocab_size",
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "word_embed_proj_dim", "rotary_dim", "original_max_position_embeddings", "sliding_window_pattern",
    "query_pre_attn_scalar",
})  # fmt: skip
COUNTS = frozenset({"n_shared_experts", "first_k_dense_replace", "max_window_layers", "sliding_window"})
DROPOUTS = frozenset({"attention_dropout", "residual_dropout", "embedding_dropout", "layerdrop"})

LIMITS = frozenset({"swiglu_limit", "clip_qkv"})
"""What values are cut at: Infinity cuts nothing, and changes no size."""

# transformers' ACT2FN, less prelu and xielu: those two bring parameters of their own.
ACTIVATIONS = frozenset({
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh",
    "gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu",
    "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh",
})  # fmt: skip

LAYER_TYPES = frozenset({
    "full_attention", "sliding_attention", "chunked_attention", "window_attention", "indexed_attention",
    "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse", "conv", "moe",
    "hybrid", "hybrid_sliding", "reference_sliding_attention", "linear_attention",
})  # fmt: skip
FORMER_TYPES = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}
