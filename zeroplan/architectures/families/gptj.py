"""GPT-J: attention without biases beside an MLP with them, one norm a layer, scores in fp32; one table of positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from zeroplan.architectures.attention import Rope, attention_forward, attention_interface, split_rotary
from zeroplan.architectures.families.gpt2 import CausalLM, GPTConfig
from zeroplan.architectures.forward_run import FLOAT, ForwardRun, LayerInputs
from zeroplan.architectures.module import (
    Activation,
    Buffer,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    Linear,
    Module,
    ModuleList,
)
from zeroplan.architectures.norms import LayerNorm
from zeroplan.autograd.elementwise import add, apply_dropout, mul, mul_scalar, neg, to
from zeroplan.autograd.products import batched_matmul
from zeroplan.autograd.reductions import cat, softmax
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import contiguous, every_second, narrow, reshape, transpose, unsqueeze, view


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


class RotaryEmbedding(Module):
    """Sines and cosines of all positions as a buffer, of which each token takes a row; nothing for backward."""

    transformers_class = "RotaryEmbedding"
    backward_fetches = 0
    returns = 0
    takes_gradient = False

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        assert c.max_position_embeddings is not None
        self.embed_positions = Buffer((c.max_position_embeddings, (c.rotary_dim + 1) // 2 * 2), "float32")

    def forward(self, run: ForwardRun, x: Tensor, positions: Tensor) -> Rope:
        """Sines, then cosines, [1, s, d/2] each."""
        width = self.embed_positions.shape[1]
        both = to(empty(run, (*positions.shape, width), FLOAT), x.width)
        half = width // 2
        return narrow(both, -1, half), narrow(both, -1, half, start=half)


class Attention(Module):
    """Keys, values and queries registered in this order. Its input comes under a name, not by position."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "out_proj", "resid_dropout")
    takes_gradient = False

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.k_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.v_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.q_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.out_proj = Linear(c.hidden_size, c.hidden_size, bias=False)
        self.resid_dropout = Dropout(c.residual_dropout)
        self.head_width, self.dropout = c.head_width, c.attention_dropout

    def heads(self, x: Tensor) -> Tensor:
        return view(x, (*x.shape[:-1], -1, self.head_width))

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        assert shared.rope is not None
        q = self.heads(self.q_proj(run, x))
        k = self.heads(self.k_proj(run, x))
        v = transpose(self.heads(self.v_proj(run, x)), 1, 2)
        sines, cosines = shared.rope
        k_turned, k_passed = split_rotary(k, 2 * sines.shape[-1])
        q_turned, q_passed = split_rotary(q, 2 * sines.shape[-1])
        k_turned = turned_by_two(k_turned, sines, cosines)
        q_turned = turned_by_two(q_turned, sines, cosines)
        k = cat((k_turned, k_passed), -1)
        q = cat((q_turned, q_passed), -1)
        q = transpose(q, 1, 2)
        k = transpose(k, 1, 2)
        weights: Tensor | None
        if run.attention == "eager":
            attend = partial(attended_in_fp32, run, dropout=self.dropout)
            out, weights = attention_interface(run, attend, q, k, v, shared.mask, shared.positions)
        else:
            out, weights = attention_forward(run, q, k, v, shared.mask, shared.positions, dropout=self.dropout)
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        out = self.out_proj(run, out)
        return self.resid_dropout(run, out), weights


def attended_in_fp32(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, dropout: float
) -> tuple[Tensor, Tensor]:
    """Scores and softmax in fp32, whatever the queries are in."""
    weights = mul_scalar(batched_matmul(to(q, FLOAT), transpose(to(k, FLOAT), 2, 3)))
    if mask is not None:
        weights = add(weights, mask)
    weights = to(softmax(weights, FLOAT), v.width)
    weights = apply_dropout(weights, dropout, on_cpu=run.on_cpu)
    out = batched_matmul(weights, v)
    return contiguous(transpose(out, 1, 2)), weights


def turned_by_two(x: Tensor, sines: Tensor, cosines: Tensor) -> Tensor:
    """Pairs of neighbours turned; sines and cosines are written out for each head element."""
    sines, cosines = twice(sines), twice(cosines)
    return add(mul(x, cosines), mul(every_two_turned(x), sines))


def twice(x: Tensor) -> Tensor:
    """[1, s, d/2] as [1, s, 1, d], each element two times."""
    return empty(x.memory, (*x.shape[:2], 1, 2 * x.shape[2]), x.width)


def every_two_turned(x: Tensor) -> Tensor:
    """Each pair as its second element negated, then the first."""
    first = every_second(x, 0)
    second = every_second(x, 1)
    x = cat((unsqueeze(neg(second), 4), unsqueeze(first, 4)), -1)
    return reshape(x, (*x.shape[:3], -1))


class MLP(Module):
    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("fc_in", "act", "fc_out", "dropout")

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.fc_in = Linear(c.hidden_size, c.ffn, bias=True)
        self.fc_out = Linear(c.ffn, c.hidden_size, bias=True)
        self.act = Activation(c.hidden_act)
        self.dropout = Dropout(c.residual_dropout)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.fc_in(run, x)
        x = self.act(run, x)
        x = self.fc_out(run, x)
        return self.dropout(run, x)


class Block(GradientCheckpointingLayer):
    """x + attention(norm(x)) + mlp(norm(x))."""

    transformers_class = "Block"

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(c.hidden_size)
        self.attn = Attention(c)
        self.mlp = MLP(c)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x = self.ln_1(run, x)
        attention, _weights = self.attn(run, x, shared)
        mlp = self.mlp(run, x)
        return add(add(attention, mlp), residual)


class Transformer(Module):
    """Without position embeddings: the attention turns queries and keys instead."""

    transformers_class = "Model"
    forward_order: tuple[str, ...] = ("wte", "drop", "rotary_emb", "h", "ln_f")
    takes_gradient = False

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.wte = Embedding(c.vocab_size, c.hidden_size)
        self.drop = Dropout(c.embedding_dropout)
        self.h = ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)
        self.rotary_emb = RotaryEmbedding(c)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.wte(run, ids)
        positions = run.positions()
        mask = run.mask()
        x = self.drop(run, embedded)
        shared = LayerInputs(positions, mask, self.rotary_emb(run, x, positions))
        for block in self.h.children.values():
            x = block(run, x, shared)
        return self.ln_f(run, x)


def build(c: GPTJConfig) -> Module:
    """The head's bias is its own even where its weight is tied."""
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.wte, bias=True)
