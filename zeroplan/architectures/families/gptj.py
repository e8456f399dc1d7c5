"""GPT-J: attention without biases beside an MLP with them, one norm a layer, a table of positions each."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.families.gpt2 import CausalLM, GPTConfig
from zeroplan.architectures.module import (
    Activation,
    Buffer,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    LayerNorm,
    Linear,
    Module,
    ModuleList,
)


@dataclass(kw_only=True)
class GPTJConfig(GPTConfig):
    vocab_size: int = 50400
    hidden_size: int = 4096
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    max_position_embeddings: int = 2048
    rotary_dim: int = 64
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    tie_word_embeddings: bool = False


class Attention(Module):
    """Keys, values and queries registered in this order; sines and cosines of all positions as a buffer.

    Its input comes under a name, not by position.
    """

    transformers_class = "Attention"
    returns = 2
    forward_order = ("q_proj", "k_proj", "v_proj", "attn_dropout", "out_proj", "resid_dropout")
    takes_gradient = False

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.attn_dropout = Dropout(c.attention_dropout)
        self.resid_dropout = Dropout(c.residual_dropout)
        self.k_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.v_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.q_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.out_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.embed_positions = Buffer((c.max_position_embeddings, (c.rotary_dim + 1) // 2 * 2), "float32")


class MLP(Module):
    transformers_class = "MLP"
    forward_order = ("fc_in", "act", "fc_out", "dropout")

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.fc_in = Linear(c.hidden_size, c.ffn, bias=True)
        self.fc_out = Linear(c.ffn, c.hidden_size, bias=True)
        self.act = Activation(c.hidden_act)
        self.dropout = Dropout(c.residual_dropout)


class Block(GradientCheckpointingLayer):
    """x + attention(norm(x)) + mlp(norm(x))."""

    transformers_class = "Block"
    returns = 2

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(c.hidden_size)
        self.attn = Attention(c)
        self.mlp = MLP(c)


class Transformer(Module):
    """Without position embeddings: the attention turns queries and keys instead."""

    transformers_class = "Model"
    takes_gradient = False

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.wte = Embedding(c.vocab_size, c.hidden_size)
        self.drop = Dropout(c.embedding_dropout)
        self.h = ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)


def build(c: GPTJConfig) -> Module:
    """The head's bias is its own even where its weight is tied."""
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.wte, bias=True)
