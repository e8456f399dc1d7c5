"""Phi 1, 1.5 and 2: biases everywhere, even on the head; one norm a layer; partial rotary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import apply_rotary_pos_emb, attention_forward, split_heads, split_rotary
from zeroplan.architectures.causal import next_token_loss
from zeroplan.architectures.families.llama import Head
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import (
    Activation,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    Linear,
    Module,
    ModuleList,
)
from zeroplan.architectures.norms import LayerNorm
from zeroplan.architectures.rope import RotaryConfig, RotaryEmbedding
from zeroplan.autograd.elementwise import add
from zeroplan.autograd.reductions import cat
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import contiguous, reshape


@dataclass(kw_only=True)
class PhiConfig(RotaryConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "residual_dropout": ("resid_pdrop",),
        "embedding_dropout": ("embd_pdrop",),
    }
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})
    rotates_part: ClassVar[bool] = True

    vocab_size: int = 51200
    hidden_size: int = 2048
    intermediate_size: int = 8192
    num_hidden_layers: int = 24
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "gelu_new"
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    attention_dropout: float | None = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    qk_layernorm: bool = False
    partial_rotary_factor: float = 0.5
    pad_token_id: int | None = None


class Attention(Module):
    """Grouped keys and values; the norms of queries and keys have hidden_size / heads entries.

    Its input comes under a name, not by position.
    """

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "q_layernorm", "k_layernorm", "dense")
    takes_gradient = False

    def __init__(self, c: PhiConfig) -> None:
        super().__init__()
        queries, keys = c.num_attention_heads * c.head_width, c.kv_heads * c.head_width
        self.q_proj = Linear(c.hidden_size, queries, bias=True)
        self.k_proj = Linear(c.hidden_size, keys, bias=True)
        self.v_proj = Linear(c.hidden_size, keys, bias=True)
        self.dense = Linear(queries, c.hidden_size, bias=True)
        if c.qk_layernorm:
            self.q_layernorm = LayerNorm(c.hidden_size // c.num_attention_heads)
            self.k_layernorm = LayerNorm(c.hidden_size // c.num_attention_heads)
        self.head_width, self.dropout = c.head_width, c.attention_dropout or 0.0

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        assert shared.rope is not None
        q = split_heads(self.q_proj(run, x), self.head_width)
        k = split_heads(self.k_proj(run, x), self.head_width)
        v = split_heads(self.v_proj(run, x), self.head_width)
        if "q_layernorm" in self.children:
            q = self.q_layernorm(run, q)
            k = self.k_layernorm(run, k)
        q_turned, q_passed = split_rotary(q, shared.rope[0].shape[-1])
        k_turned, k_passed = split_rotary(k, shared.rope[0].shape[-1])
        q_turned, k_turned = apply_rotary_pos_emb(q_turned, k_turned, shared.rope)
        q = cat((q_turned, q_passed), -1)
        k = cat((k_turned, k_passed), -1)
        out, weights = attention_forward(run, q, k, v, shared.mask, shared.positions, dropout=self.dropout)
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        return self.dense(run, out), weights


class MLP(Module):
    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("fc1", "activation_fn", "fc2")

    def __init__(self, c: PhiConfig) -> None:
        super().__init__()
        self.activation_fn = Activation(c.hidden_act)
        self.fc1 = Linear(c.hidden_size, c.ffn, bias=True)
        self.fc2 = Linear(c.ffn, c.hidden_size, bias=True)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.fc1(run, x)
        x = self.activation_fn(run, x)
        return self.fc2(run, x)


class Layer(GradientCheckpointingLayer):
    """x + dropout(attention(norm(x))) + dropout(mlp(norm(x))), one norm and one dropout for both."""

    transformers_class = "DecoderLayer"
    forward_order: tuple[str, ...] = ("input_layernorm", "self_attn", "resid_dropout", "mlp", "resid_dropout")

    def __init__(self, c: PhiConfig) -> None:
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = MLP(c)
        self.input_layernorm = LayerNorm(c.hidden_size)
        self.resid_dropout = Dropout(c.residual_dropout)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x = self.input_layernorm(run, x)
        attention, _weights = self.self_attn(run, x, shared)
        attention = self.resid_dropout(run, attention)
        mlp = self.resid_dropout(run, self.mlp(run, x))
        return add(add(attention, mlp), residual)


class Decoder(Module):
    transformers_class = "Model"
    forward_order: tuple[str, ...] = ("embed_tokens", "embed_dropout", "rotary_emb", "layers", "final_layernorm")
    takes_gradient = False

    def __init__(self, c: PhiConfig) -> None:
        super().__init__()
        self.embed_tokens = Embedding(c.vocab_size, c.hidden_size)
        self.layers = ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.rotary_emb = RotaryEmbedding(c)
        self.embed_dropout = Dropout(c.embedding_dropout)
        self.final_layernorm = LayerNorm(c.hidden_size)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.embed_tokens(run, ids)
        positions = run.positions()
        mask = run.mask()
        embedded = self.embed_dropout(run, embedded)
        shared = LayerInputs(positions, mask, self.rotary_emb(run, embedded, positions))
        x = embedded
        for layer in self.layers.children.values():
            x = layer(run, x, shared)
        return self.final_layernorm(run, x)


class CausalLM(Module):
    transformers_class = "ForCausalLM"
    takes_gradient = False

    def __init__(self, c: PhiConfig) -> None:
        super().__init__()
        self.model = Decoder(c)
        self.lm_head = Head(c, self.model.embed_tokens, bias=True)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return next_token_loss(run, self.model, self.lm_head, ids)


def build(c: PhiConfig) -> Module:
    return CausalLM(c)
