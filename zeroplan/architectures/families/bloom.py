"""BLOOM: ALiBi instead of positions, normed embeddings, fused query_key_value, an MLP of 4 × hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.config import Config
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


@dataclass(kw_only=True)
class BloomConfig(Config):
    """`n_embed`, the former name of hidden_size, wins over it unless null."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "num_hidden_layers": ("n_layer", "num_hidden_layers"),
        "num_attention_heads": ("n_head", "num_attention_heads"),
        "residual_dropout": ("hidden_dropout",),
    }
    divides_heads: ClassVar[bool] = True

    vocab_size: int = 250880
    hidden_size: int = 64
    n_embed: int | None = None
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    tie_word_embeddings: bool = True
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    apply_residual_connection_post_layernorm: bool = False

    def derive(self) -> None:
        if self.n_embed is not None:
            self.hidden_size = self.n_embed
        super().derive()
        self.intermediate_size = 4 * self.hidden_size
        self.hidden_act = "gelu_pytorch_tanh"  # BLOOM's own gelu is the tanh approximation


class Attention(Module):
    """A dropout that is a function, not a module, ends it."""

    transformers_class = "Attention"
    returns = 2
    forward_order = ("query_key_value", "attention_dropout", "dense")

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.query_key_value = Linear(c.hidden_size, 3 * c.hidden_size, bias=True)
        self.dense = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.attention_dropout = Dropout(c.attention_dropout)
        self.saves_last = c.residual_dropout > 0


class MLP(Module):
    """A dropout that is a function, not a module, ends it."""

    transformers_class = "MLP"

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.dense_h_to_4h = Linear(c.hidden_size, c.ffn, bias=True)
        self.gelu_impl = Activation(c.hidden_act)
        self.dense_4h_to_h = Linear(c.ffn, c.hidden_size, bias=True)
        self.saves_last = c.residual_dropout > 0


class Block(GradientCheckpointingLayer):
    transformers_class = "Block"
    returns = 2

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.input_layernorm = LayerNorm(c.hidden_size)
        self.self_attention = Attention(c)
        self.post_attention_layernorm = LayerNorm(c.hidden_size)
        self.mlp = MLP(c)


class Transformer(Module):
    transformers_class = "Model"
    takes_gradient = False

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(c.vocab_size, c.hidden_size)
        self.word_embeddings_layernorm = LayerNorm(c.hidden_size)
        self.h = ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)


def build(c: BloomConfig) -> Module:
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.word_embeddings)
