"""Falcon: three layouts of attention and norms in one family (7b, 40b and 180b, and the earlier 1b)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import _flash_attention_forward, apply_rotary_pos_emb, sdpa_attention_forward
from zeroplan.architectures.families.bloom import dropped_and_added
from zeroplan.architectures.families.gpt2 import CausalLM
from zeroplan.architectures.forward_run import BOOL, FLOAT, LONG, MULTIPROCESSORS, ForwardRun, LayerInputs
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
from zeroplan.autograd.elementwise import add, add_, mul_scalar, to
from zeroplan.autograd.flash import FlashPackage
from zeroplan.autograd.indexing import index_select
from zeroplan.autograd.products import batched_matmul, torch_linear
from zeroplan.autograd.reductions import softmax
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import expand, narrow, reshape, select, transpose, view
from zeroplan.specs.strategy import ATTENTION


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
    masks_always: ClassVar[bool] = True
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

    @property
    def own_attention(self) -> tuple[str, ...]:
        return ATTENTION

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
    def no_flash(self) -> str:
        return "whose ALiBi transformers refuses with flash attention (ValueError)" if self.alibi else ""

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

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        out = torch_linear(x, run.parameter(self.weight))
        bias = self.parameters.get("bias")
        return add(out, run.parameter(bias)) if bias else out


class Attention(Module):
    """Queries, keys and values from one matrix, in the groups that the layout asks for."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("query_key_value", "dense")

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        fused = (c.num_attention_heads + 2 * c.kv_heads) * c.head_width
        self.query_key_value = FalconLinear(c.hidden_size, fused, bias=bool(c.bias))
        self.dense = FalconLinear(c.hidden_size, c.hidden_size, bias=bool(c.bias))
        self.attention_dropout = Dropout(c.attention_dropout)
        if c.alibi:
            self.eager_order = ("query_key_value", "attention_dropout", "dense")
        self.heads, self.kv_heads, self.head_width = c.num_attention_heads, c.kv_heads, c.head_width
        self.grouped, self.multi_query = bool(c.new_decoder_architecture), bool(c.multi_query)
        self.dropout = c.attention_dropout

    def split(self, run: ForwardRun, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [b, s, n, d]."""
        rows, width = fused.shape[:2], self.head_width
        if self.grouped:
            each = self.heads // self.kv_heads
            fused = view(fused, (*rows, -1, each + 2, width))
            q = narrow(fused, 3, each)
            k, v = index_select(fused, 3, on_cpu=run.on_cpu), index_select(fused, 3, on_cpu=run.on_cpu)
            k, v = expand(k, q.shape), expand(v, q.shape)
            flat = (*rows, self.heads, width)
            return reshape(q, flat), reshape(k, flat), reshape(v, flat)
        if not self.multi_query:
            fused = view(fused, (*rows, self.heads, 3, width))
            return select(fused, 3), select(fused, 3), select(fused, 3)
        fused = view(fused, (*rows, self.heads + 2, width))
        return (
            narrow(fused, 2, self.heads),
            index_select(fused, 2, on_cpu=run.on_cpu),
            index_select(fused, 2, on_cpu=run.on_cpu),
        )

    def forward(
        self, run: ForwardRun, x: Tensor, alibi: Tensor | None, shared: LayerInputs
    ) -> tuple[Tensor, Tensor | None]:
        fused = self.query_key_value(run, x)
        q, k, v = self.split(run, fused)
        q, k, v = transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2)
        if alibi is None:
            assert shared.rope is not None
            q, k = apply_rotary_pos_emb(q, k, shared.rope)
        if run.flash:
            q, k, v = transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2)
            out = _flash_attention_forward(run, q, k, v, FlashPackage(run.flash, MULTIPROCESSORS, self.dropout))
            return self.dense(run, reshape(out, (*x.shape[:2], -1))), None
        if run.attention != "eager":
            out = sdpa_attention_forward(run, q, k, v, shared.mask, dropout=self.dropout if alibi is not None else 0.0)
            out = reshape(transpose(out, 1, 2), (*x.shape[:2], -1))
            return self.dense(run, out), None
        assert shared.mask is not None
        if alibi is None:
            scores = batched_matmul(q, transpose(k, 2, 3))
            scores = softmax(add(scores, shared.mask), x.width)
            out = batched_matmul(scores, v)
            out = reshape(transpose(out, 1, 2), (*x.shape[:2], -1))
            return self.dense(run, out), scores
        return self.with_alibi(run, x, (q, k, v), alibi, shared.mask)

    def with_alibi(
        self, run: ForwardRun, x: Tensor, heads: tuple[Tensor, Tensor, Tensor], alibi: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores in fp32 with each head's slope, their softmax in the model's dtype."""
        q, k, v = heads
        product = batched_matmul(q, transpose(k, 2, 3))
        scores = product
        scores = to(scores, FLOAT)
        logits = add(scores, reshape(alibi, (run.batch, self.heads, 1, -1)))
        probabilities = softmax(add(logits, mask), x.width)
        probabilities = self.attention_dropout(run, probabilities)
        out = batched_matmul(probabilities, v)
        out = reshape(transpose(out, 1, 2), (*x.shape[:2], -1))
        return self.dense(run, out), probabilities


class MLP(Module):
    """Named as GPT-NeoX's."""

    transformers_class = "MLP"

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        hidden, ffn, bias = c.hidden_size, c.ffn, bool(c.bias)
        self.dense_h_to_4h = FalconLinear(hidden, ffn, bias=bias)
        self.act = Activation(c.hidden_act)
        self.dense_4h_to_h = FalconLinear(ffn, hidden, bias=bias)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.act(run, self.dense_h_to_4h(run, x))
        return self.dense_4h_to_h(run, x)


class Layer(GradientCheckpointingLayer):
    """One norm or two for attention and MLP side by side; two, in this order, for one after the other."""

    transformers_class = "DecoderLayer"
    eager_returns = 1
    forward_order: tuple[str, ...] = (
        "ln_attn", "ln_mlp", "input_layernorm", "self_attention", "post_attention_layernorm", "mlp",
    )  # fmt: skip
    gives_weights = True

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
        self.parallel, self.grouped = bool(c.parallel_attn), bool(c.new_decoder_architecture)
        self.attention_dropout, self.residual_dropout = c.attention_dropout, c.residual_dropout

    def forward(
        self, run: ForwardRun, x: Tensor, alibi: Tensor | None, shared: LayerInputs
    ) -> tuple[Tensor, Tensor | None]:
        residual = x
        if "ln_mlp" in self.children:
            attention_input = self.ln_attn(run, x)
            mlp_input = self.ln_mlp(run, x)
        else:
            attention_input = mlp_input = self.input_layernorm(run, x)
        attention, weights = self.self_attention(run, attention_input, alibi, shared)
        if not self.parallel and not self.grouped:
            residual = dropped_and_added(run, attention, residual, self.attention_dropout)
            mlp_input = self.post_attention_layernorm(run, residual)
        mlp = self.mlp(run, mlp_input)
        if self.parallel or self.grouped:
            mlp = add_(mlp, attention)
        output = dropped_and_added(run, mlp, residual, self.residual_dropout)
        return output, weights


class Transformer(Module):
    """The rotary frequencies are there even where ALiBi takes their place."""

    transformers_class = "Model"
    forward_order: tuple[str, ...] = ("word_embeddings", "rotary_emb", "h", "ln_f")
    takes_gradient = False

    def __init__(self, c: FalconConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(c.vocab_size, c.hidden_size)
        self.h = ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)
        self.rotary_emb = RotaryEmbedding(c)
        self.heads, self.alibi = c.num_attention_heads, bool(c.alibi)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.word_embeddings(run, ids)
        alibi = None
        if self.alibi:
            seen = empty(run, (run.batch, run.seq), LONG)  # noqa: F841 (alive while forward runs)
            alibi = empty(run, (run.batch * self.heads, 1, run.seq), run.width)
        positions = run.positions()
        mask = run.mask(always=True)
        if alibi is not None:
            if run.attention != "eager":
                mask = empty(run, (run.batch, 1, run.seq, run.seq), run.width)
            alibi = reshape(alibi, (run.batch, self.heads, 1, run.seq))
            mask = self.joint_mask(run, mul_scalar(alibi), mask)
        x = embedded
        shared = LayerInputs(positions, mask, self.rotary_emb(run, x, positions))
        for block in self.h.children.values():
            outputs = block(run, x, alibi, shared)
            x = outputs[0]
        return self.ln_f(run, x)

    def joint_mask(self, run: ForwardRun, _slopes: Tensor, _mask: Tensor | None) -> Tensor:
        """The slopes, and a large number where the mask says so: as many numbers as scores."""
        hidden = empty(run, (run.batch, 1, run.seq, run.seq), BOOL)  # noqa: F841 (alive meanwhile)
        return empty(run, (run.batch, self.heads, run.seq, run.seq), run.width)


def build(c: FalconConfig) -> Module:
    transformer = Transformer(c)
    return CausalLM(c, transformer, transformer.word_embeddings)
