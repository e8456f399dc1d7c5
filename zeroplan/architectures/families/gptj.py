"""GPT-J: attention without biases beside an MLP with them, one norm a layer, a table of positions each."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.families.gpt2 import GPTConfig, LMHeadModel
from zeroplan.architectures.module import Buffer, Embedding, LayerNorm, Linear, Module, ModuleList


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
    """Keys, values and queries registered in this order; sines and cosines of all positions as a buffer."""

    forward_order = ("q_proj", "k_proj", "v_proj", "out_proj")

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.k_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.v_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.q_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.out_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.embed_positions = Buffer((c.max_position_embeddings, (c.rotary_dim + 1) // 2 * 2), "float32")


class MLP(Module):
    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.fc_in = Linear(c.hidden_size, c.ffn, bias=True)
        self.fc_out = Linear(c.ffn, c.hidden_size, bias=True)


class Block(Module):
    """x + attention(norm(x)) + mlp(norm(x))."""

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(c.hidden_size)
        self.attn = Attention(c)
        self.mlp = MLP(c)
        self.saves_last = c.residual_dropout > 0


class Transformer(Module):
    """Without position embeddings: the attention turns queries and keys instead."""

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.wte = Embedding(c.vocab_size, c.hidden_size)
        self.h = ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)


def build(c: GPTJConfig) -> Module:
    """The head's bias is its own even where its weight is tied."""
    transformer = Transformer(c)
    return LMHeadModel(c, transformer, transformer.wte, bias=True)
