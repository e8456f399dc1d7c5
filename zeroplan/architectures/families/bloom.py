"""BLOOM: ALiBi instead of positions, normed embeddings, fused query_key_value, an MLP of 4 × hidden."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.config import Config
from zeroplan.architectures.families.gpt2 import CausalLM
from zeroplan.architectures.forward_run import FLOAT, ForwardRun, LayerInputs
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
from zeroplan.autograd.activations import bloom_gelu
from zeroplan.autograd.elementwise import add, apply_dropout, to
from zeroplan.autograd.products import baddbmm, bmm, heads_joined
from zeroplan.autograd.reductions import softmax
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import reshape, select, transpose, view
from zeroplan.specs.strategy import ATTENTION


@dataclass(kw_only=True)
class BloomConfig(Config):
    """`n_embed`, the former name of hidden_size, wins over it unless null."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "num_hidden_layers": ("n_layer", "num_hidden_layers"),
        "num_attention_heads": ("n_head", "num_attention_heads"),
        "residual_dropout": ("hidden_dropout",),
    }
    divides_heads: ClassVar[bool] = True
    has_sdpa: ClassVar[bool] = False

    vocab_size: int = 250880
    hidden_size: int = 64
    n_embed: int | None = None
    num_hidden_layers: int = 2
    num_attention_heads: int = 8
    tie_word_embeddings: bool = True
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    apply_residual_connection_post_layernorm: bool = False

    @property
    def own_attention(self) -> tuple[str, ...]:
        return ATTENTION

    def derive(self) -> None:
        if self.n_embed is not None:
            self.hidden_size = self.n_embed
        super().derive()
        self.intermediate_size = 4 * self.hidden_size
        self.hidden_act = "gelu_pytorch_tanh"  # BLOOM's own gelu is the tanh approximation

    @property
    def no_flash(self) -> str:
        return "for which transformers has no flash attention (ValueError)"


class Attention(Module):
    """A dropout that is a function, not a module, ends it."""

    transformers_class = "Attention"
    returns = 2
    forward_order: tuple[str, ...] = ("query_key_value", "attention_dropout", "dense")

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.query_key_value = Linear(c.hidden_size, 3 * c.hidden_size, bias=True)
        self.dense = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.attention_dropout = Dropout(c.attention_dropout)
        self.saves_last = c.residual_dropout > 0
        self.head_width, self.residual_dropout = c.head_width, c.residual_dropout

    def split(self, fused: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, which lie together head by head."""
        fused = view(fused, (*fused.shape[:-1], -1, 3, self.head_width))
        return tuple(transpose(select(fused, 3), 1, 2) for _ in range(3))

    def forward(
        self, run: ForwardRun, x: Tensor, residual: Tensor, alibi: Tensor, shared: LayerInputs
    ) -> tuple[Tensor, Tensor | None]:
        batch, seq, _hidden = x.shape
        fused = self.query_key_value(run, x)
        q, k, v = self.split(fused)
        heads = q.shape[1]
        q = heads_joined(q)
        k = transpose(heads_joined(k), 1, 2)
        v = heads_joined(v)
        scores = baddbmm(alibi, q, k)
        weights = view(scores, (batch, heads, seq, seq))
        if shared.mask is not None:
            weights = add(weights, shared.mask)
        probabilities = to(softmax(weights, FLOAT, fused=run.half and not run.on_cpu), q.width)
        probabilities = self.attention_dropout(run, probabilities)
        rows = view(probabilities, (batch * heads, seq, seq))
        out = bmm(rows, v)
        out = merged(out, heads)
        output = self.dense(run, out)
        output = dropped_and_added(run, output, residual, self.residual_dropout)
        return output, probabilities


def merged(x: Tensor, heads: int) -> Tensor:
    """[b·n, s, d] as [b, s, n·d]."""
    rows, seq, width = x.shape
    x = view(x, (rows // heads, heads, seq, width))
    x = transpose(x, 1, 2)
    return reshape(x, (rows // heads, seq, heads * width))


def dropped_and_added(run: ForwardRun, x: Tensor, residual: Tensor, probability: float | None) -> Tensor:
    out = apply_dropout(x, probability, on_cpu=run.on_cpu)
    return add(residual, out)


class Gelu(Activation):
    """A function of its own, which keeps its input and works the tanh approximation out again in backward."""

    def forward(self, _run: ForwardRun, x: Tensor) -> Tensor:
        return bloom_gelu(x)


class MLP(Module):
    """A dropout that is a function, not a module, ends it."""

    transformers_class = "MLP"

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.dense_h_to_4h = Linear(c.hidden_size, c.ffn, bias=True)
        self.gelu_impl = Gelu(c.hidden_act)
        self.dense_4h_to_h = Linear(c.ffn, c.hidden_size, bias=True)
        self.saves_last = c.residual_dropout > 0
        self.residual_dropout = c.residual_dropout

    def forward(self, run: ForwardRun, x: Tensor, residual: Tensor) -> Tensor:
        x = self.gelu_impl(run, self.dense_h_to_4h(run, x))
        out = self.dense_4h_to_h(run, x)
        return dropped_and_added(run, out, residual, self.residual_dropout)


class Block(GradientCheckpointingLayer):
    transformers_class = "Block"
    returns = 2
    gives_weights = True

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.input_layernorm = LayerNorm(c.hidden_size)
        self.self_attention = Attention(c)
        self.post_attention_layernorm = LayerNorm(c.hidden_size)
        self.mlp = MLP(c)
        self.residual_after_norm = c.apply_residual_connection_post_layernorm

    def forward(self, run: ForwardRun, x: Tensor, alibi: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        normed = self.input_layernorm(run, x)
        residual = normed if self.residual_after_norm else x
        attention, weights = self.self_attention(run, normed, residual, alibi, shared)
        normed = self.post_attention_layernorm(run, attention)
        residual = normed if self.residual_after_norm else attention
        return self.mlp(run, normed, residual), weights


class Transformer(Module):
    transformers_class = "Model"
    takes_gradient = False

    def __init__(self, c: BloomConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(c.vocab_size, c.hidden_size)
        self.word_embeddings_layernorm = LayerNorm(c.hidden_size)
        self.h = ModuleList(Block(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)
        self.heads = c.num_attention_heads

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.word_embeddings(run, ids)
        x = self.word_embeddings_layernorm(run, embedded)
        slopes = empty(run, (self.heads,), FLOAT)  # noqa: F841 (alive while forward runs)
        alibi = to(empty(run, (run.batch * self.heads, 1, run.seq), FLOAT), x.width)
        shared = LayerInputs(None, run.mask())
        for block in self.h.children.values():
            outputs = block(run, x, alibi, shared)
            x = outputs[0]
        return self.ln_f(run, x)


def build(c: BloomConfig) -> Module:
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.word_embeddings)
