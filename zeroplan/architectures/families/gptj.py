"""GPT-J: attention without biases beside an MLP with them, one norm a layer, a table of positions each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import _flash_attention_forward, split_rotary
from zeroplan.architectures.families.gpt2 import CausalLM, GPTConfig
from zeroplan.architectures.forward_run import FLOAT, LONG, MULTIPROCESSORS, ForwardRun, LayerInputs
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
from zeroplan.autograd.elementwise import add, mul, mul_scalar, neg, to
from zeroplan.autograd.flash import FlashPackage
from zeroplan.autograd.products import batched_matmul
from zeroplan.autograd.reductions import cat, softmax
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import contiguous, every_second, narrow, reshape, transpose, unsqueeze, view
from zeroplan.specs.strategy import ATTENTION


@dataclass(kw_only=True)
class GPTJConfig(GPTConfig):
    has_sdpa: ClassVar[bool] = False

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

    @property
    def own_attention(self) -> tuple[str, ...]:
        return ATTENTION


class Attention(Module):
    """Keys, values and queries registered in this order; sines and cosines of all positions as a buffer.

    Its input comes under a name, not by position.
    """

    transformers_class = "Attention"
    returns = 2
    forward_order: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "attn_dropout", "out_proj", "resid_dropout")
    flash_order = ("q_proj", "k_proj", "v_proj", "out_proj", "resid_dropout")
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
        self.head_width, self.dropout = c.head_width, c.attention_dropout

    def heads(self, x: Tensor) -> Tensor:
        return view(x, (*x.shape[:-1], -1, self.head_width))

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        q = self.q_proj(run, x)
        k = self.k_proj(run, x)
        v = self.v_proj(run, x)
        q, k = self.heads(q), self.heads(k)
        v = transpose(self.heads(v), 1, 2)
        rows, width = self.embed_positions.shape
        table = empty(run, (1, rows, width), FLOAT)
        places = empty(run, (1, run.seq, width), LONG)
        both = to(empty(run, places.shape, FLOAT), k.width)
        half = width // 2
        sines, cosines = narrow(both, -1, half), narrow(both, -1, half, start=half)
        k_turned, k_passed = split_rotary(k, width)
        q_turned, q_passed = split_rotary(q, width)
        k_turned = turned_by_two(k_turned, sines, cosines)
        q_turned = turned_by_two(q_turned, sines, cosines)
        k = cat((k_turned, k_passed), -1)
        q = cat((q_turned, q_passed), -1)
        k = transpose(k, 1, 2)
        q = transpose(q, 1, 2)
        if run.flash:
            k, q, v = contiguous(transpose(k, 1, 2)), contiguous(transpose(q, 1, 2)), contiguous(transpose(v, 1, 2))
            weights = _flash_attention_forward(
                run, q, k, v, FlashPackage(run.flash, MULTIPROCESSORS, self.dropout), positions=False
            )
            out = reshape(weights, (*x.shape[:-1], -1))
        else:
            out, weights = self.attended(run, q, k, v, shared.mask)
            out = contiguous(transpose(out, 1, 2))
            out = view(out, (*x.shape[:-1], -1))
        out = self.out_proj(run, out)
        out = self.resid_dropout(run, out)
        del table
        return out, weights

    def attended(self, run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores and softmax in fp32."""
        q = to(q, FLOAT)
        k = to(k, FLOAT)
        weights = batched_matmul(q, transpose(k, 2, 3))
        weights = mul_scalar(weights)
        if mask is not None:
            weights = add(weights, mask)
        weights = softmax(weights, FLOAT)
        weights = to(weights, v.width)
        weights = self.attn_dropout(run, weights)
        return batched_matmul(weights, v), weights


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
    returns = 2
    gives_weights = True

    def __init__(self, c: GPTJConfig) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(c.hidden_size)
        self.attn = Attention(c)
        self.mlp = MLP(c)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        residual = x
        x = self.ln_1(run, x)
        attention, weights = self.attn(run, x, shared)
        mlp = self.mlp(run, x)
        x = add(add(attention, mlp), residual)
        return x, weights


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

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.wte(run, ids)
        positions = run.positions()
        shared = LayerInputs(positions, run.mask())
        x = embedded
        x = self.drop(run, x)
        for block in self.h.children.values():
            outputs = block(run, x, shared)
            x = outputs[0]
        x = self.ln_f(run, x)
        return view(x, (-1, *x.shape[1:]))


def build(c: GPTJConfig) -> Module:
    """The head's bias is its own even where its weight is tied."""
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.wte, bias=True)
