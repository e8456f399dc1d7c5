"""Falcon: three layouts of attention and norms in one family (7b, 40b and 180b, and the earlier 1b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.gpt2 import CausalLM
from zeroplan.architectures.module import (
    Activation,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    LayerNorm,
    Linear,
    Module,
    ModuleList,
)
from zeroplan.architectures.rope import RotaryConfig, RotaryEmbedding


@dataclass(kw_only=True)
class FalconConfig(RotaryConfig):
    """`n_embed`, the former name of hidden_size, wins over it; n_head and n_layer are not read."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "num_key_value_heads": ("num_kv_heads",),
        "intermediate_size": ("ffn_hidden_size",),
        "hidden_act": ("activation",),
        "residual_dropout": ("hidden_dropout",),
    }
    divides_heads: ClassVar[bool] = True
    refused: ClassVar[frozenset[str]] = frozenset({"head_dim", "rotary"})

    vocab_size: int = 65024
    hidden_size: int = 4544
    n_embed: int | None = None
    intermediate_size: int | None = None
    num_hidden_layers: int = 32
    num_attention_heads: int = 71
    num_key_value_heads: int | None = None
    hidden_act: str = "gelu"
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = True
    attention_dropout: float = 0.0
    residual_dropout: float | None = 0.0
    alibi: bool | None = False
    new_decoder_architecture: bool | None = False
    multi_query: bool | None = True
    parallel_attn: bool | None = True
    num_ln_in_parallel_attn: int | None = None
    bias: bool | None = False

    def derive(self) -> None:
        if self.n_embed is not None:
            self.hidden_size = self.n_embed
        super().derive()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.num_ln_in_parallel_attn is None and self.new_decoder_architecture:
            self.num_ln_in_parallel_attn = 2
        self.head_dim = self.hidden_size // max(self.num_attention_heads, 1)

    @property
    def kv_heads(self) -> int:
        """num_kv_heads counts in the new architecture only; before, it is one head or all."""
        if self.new_decoder_architecture:
            return super().kv_heads
        return 1 if self.multi_query else self.num_attention_heads


class FalconLinear(Linear):
    """x @ W.T + b, written out: DeepSpeed does not replace it."""

    transformers_class = "Linear"
    calls_linear = False
    saves_views = True


class Attention(Module):
    """Queries, keys and values from one matrix, in the groups that the layout asks for."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order = ("query_key_value", "dense")

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        fused = (c.num_attention_heads + 2 * c.kv_heads) * c.head_width
        self.query_key_value = FalconLinear(c.hidden_size, fused, bias=bool(c.bias))
        self.dense = FalconLinear(c.hidden_size, c.hidden_size, bias=bool(c.bias))
        self.attention_dropout = Dropout(c.attention_dropout)
        if c.alibi:
            self.eager_order = ("query_key_value", "attention_dropout", "dense")


class MLP(Module):
    """Named as GPT-NeoX's."""

    transformers_class = "MLP"

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        hidden, ffn, bias = c.hidden_size, c.ffn, bool(c.bias)
        self.dense_h_to_4h = FalconLinear(hidden, ffn, bias=bias)
        self.act = Activation(c.hidden_act)
        self.dense_4h_to_h = FalconLinear(ffn, hidden, bias=bias)


class Layer(GradientCheckpointingLayer):
    """One norm or two for attention and MLP side by side; two, in this order, for one after the other."""

    transformers_class = "DecoderLayer"
    eager_returns = 1
    forward_order = (
        "ln_attn", "ln_mlp", "input_layernorm", "self_attention", "post_attention_layernorm", "mlp",
    )  # fmt: skip

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        self.self_attention = Attention(c)
        self.mlp = MLP(c)
        self.saves_last = bool(c.residual_dropout)
        if not c.parallel_attn:
            self.post_attention_layernorm = LayerNorm(c.hidden_size)
            self.input_layernorm = LayerNorm(c.hidden_size)
        elif c.num_ln_in_parallel_attn == 2:
            self.ln_attn = LayerNorm(c.hidden_size)
            self.ln_mlp = LayerNorm(c.hidden_size)
        else:
            self.input_layernorm = LayerNorm(c.hidden_size)


class Transformer(Module):
    """The rotary frequencies are there even where ALiBi takes their place."""

    transformers_class = "Model"
    forward_order = ("word_embeddings", "rotary_emb", "h", "ln_f")
    takes_gradient = False

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(c.vocab_size, c.hidden_size)
        self.h = ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)
        self.rotary_emb = RotaryEmbedding(c)


def build(c: FalconConfig) -> Module:
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.word_embeddings)
