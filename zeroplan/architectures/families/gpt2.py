"""GPT-2: learned positions, Conv1D layers (weights stored [in, out]), biases everywhere, a tied head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from zeroplan.architectures.attention import attention_forward, attention_interface, split_heads
from zeroplan.architectures.causal import next_token_loss
from zeroplan.architectures.config import Config
from zeroplan.architectures.families.llama import Head
from zeroplan.architectures.forward_run import FLOAT, ForwardRun, LayerInputs
from zeroplan.architectures.module import (
    Activation,
    Conv1D,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    Module,
    ModuleList,
    Unary,
)
from zeroplan.architectures.norms import LayerNorm
from zeroplan.autograd.elementwise import add, apply_dropout, mul_scalar, to
from zeroplan.autograd.products import baddbmm, batched_matmul, heads_joined
from zeroplan.autograd.reductions import softmax
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import chunk, contiguous, reshape, transpose, view

GPT_NAMES = {
    "hidden_size": ("n_embd", "hidden_size"),
    "num_hidden_layers": ("n_layer", "num_hidden_layers"),
    "num_attention_heads": ("n_head", "num_attention_heads"),
    "max_position_embeddings": ("n_positions", "max_position_embeddings"),
    "intermediate_size": ("n_inner",),
    "hidden_act": ("activation_function",),
    "attention_dropout": ("attn_pdrop",),
    "residual_dropout": ("resid_pdrop",),
    "embedding_dropout": ("embd_pdrop",),
}


@dataclass(kw_only=True)
class GPTConfig(Config):
    """The fields that GPT-2, GPT-J and GPT-BigCode spell alike; n_inner left out or null is 4 × n_embd."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = GPT_NAMES
    divides_heads: ClassVar[bool] = True

    intermediate_size: int | None = None
    max_position_embeddings: int = 1024
    hidden_act: str = "gelu_new"
    attention_dropout: float = 0.1
    residual_dropout: float = 0.1
    embedding_dropout: float = 0.1
    tie_word_embeddings: bool = True

    def derive(self) -> None:
        super().derive()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size


@dataclass(kw_only=True)
class GPT2Config(GPTConfig):
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    add_cross_attention: bool = False
    @property
    def own_attention(self) -> tuple[str, ...]:
        return ("eager",) if self.reorder_and_upcast_attn else ()


class Attention(Module):
    """Queries, keys and values from one matrix; across to an encoder, the queries have their own."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("c_attn", "c_proj", "resid_dropout")

    def __init__(self, c: GPT2Config, *, cross: bool = False) -> None:
        super().__init__()
        self.c_attn = Conv1D(c.hidden_size, (2 if cross else 3) * c.hidden_size)
        if cross:
            self.q_attn = Conv1D(c.hidden_size, c.hidden_size)
        self.c_proj = Conv1D(c.hidden_size, c.hidden_size)
        self.attn_dropout = Dropout(c.attention_dropout)
        self.resid_dropout = Dropout(c.residual_dropout)
        self.head_width, self.dropout = c.head_width, c.attention_dropout
        self.reorders = c.reorder_and_upcast_attn
        if c.reorder_and_upcast_attn:
            self.eager_order = ("c_attn", "attn_dropout", "c_proj", "resid_dropout")

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        fused = self.c_attn(run, x)
        q, k, v = chunk(fused, 3, 2)
        del fused
        k = split_heads(k, self.head_width)
        v = split_heads(v, self.head_width)
        q = split_heads(q, self.head_width)
        weights: Tensor | None
        if run.attention == "eager":
            drop = self.attn_dropout if self.reorders else None  # the module, or a function of its own
            attend = partial(attended_narrowly, run, dropout=self.dropout, upcasting=drop)
            out, weights = attention_interface(run, attend, q, k, v, shared.mask)
        else:
            out, weights = attention_forward(run, q, k, v, shared.mask, dropout=self.dropout)
        out = contiguous(reshape(out, (*out.shape[:-2], -1)))
        out = self.c_proj(run, out)
        return self.resid_dropout(run, out), weights


def attended_narrowly(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, *,
    upcasting: Dropout | None = None,
    cast: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Scores and their softmax in the model's own dtype, or both in fp32 before the module `upcasting`.

    Under autocast the softmax is in fp32 anyway; `cast`: and then cast to the values' dtype (BERT leaves that out).
    """
    if upcasting:
        weights = baddbmm(None, to(heads_joined(q), FLOAT), to(heads_joined(transpose(k, 2, 3)), FLOAT))
        weights = view(weights, (*q.shape[:2], q.shape[2], k.shape[2]))
    else:
        weights = mul_scalar(batched_matmul(q, transpose(k, 2, 3)))
    if mask is not None:
        weights = add(weights, mask)
    weights = softmax(weights, FLOAT if run.autocast else weights.width)
    if cast:
        weights = to(weights, v.width)
    weights = upcasting(run, weights) if upcasting else apply_dropout(weights, dropout, on_cpu=run.on_cpu)
    out = batched_matmul(weights, v)
    return transpose(out, 1, 2), weights


class MLP(Module):
    """Two layers of the kind that the family has."""

    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("c_fc", "act", "c_proj", "dropout")

    def __init__(self, c: GPTConfig, linear: Callable[[int, int], Unary] = Conv1D) -> None:
        super().__init__()
        self.c_fc = linear(c.hidden_size, c.ffn)
        self.c_proj = linear(c.ffn, c.hidden_size)
        self.act = Activation(c.hidden_act)
        self.dropout = Dropout(c.residual_dropout)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.c_fc(run, x)
        x = self.act(run, x)
        x = self.c_proj(run, x)
        return self.dropout(run, x)


class Block(GradientCheckpointingLayer):
    """Attention across to an encoder runs only beside one."""

    transformers_class = "Block"
    mask_by_position: ClassVar[bool] = True
    forward_order: tuple[str, ...] = ("ln_1", "attn", "ln_2", "mlp")

    def __init__(self, c: GPTConfig, attn: Module, mlp: Module, crossattention: Module | None = None) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(c.hidden_size)
        self.attn = attn
        self.ln_2 = LayerNorm(c.hidden_size)
        if crossattention:
            self.crossattention = crossattention
            self.ln_cross_attn = LayerNorm(c.hidden_size)
        self.mlp = mlp

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x = self.ln_1(run, x)
        attention, _weights = self.attn(run, x, shared)
        x = add(attention, residual)
        residual = x
        x = self.ln_2(run, x)
        mlp = self.mlp(run, x)
        return add(residual, mlp)


class Transformer(Module):
    """Token and position embeddings, the blocks, a final norm."""

    transformers_class = "Model"
    takes_gradient = False
    gives_positions: ClassVar[bool] = True

    def __init__(self, c: Config, block: Callable[[], Module]) -> None:
        super().__init__()
        assert c.max_position_embeddings is not None
        self.wte = Embedding(c.vocab_size, c.hidden_size)
        self.wpe = Embedding(c.max_position_embeddings, c.hidden_size)
        self.drop = Dropout(c.embedding_dropout)
        self.h = ModuleList(block() for _ in range(c.num_hidden_layers))
        self.ln_f = LayerNorm(c.hidden_size)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        tokens = self.wte(run, ids)
        positions = run.positions()
        places = self.wpe(run, positions)
        x = add(tokens, places)
        shared = LayerInputs(positions if self.gives_positions else None, run.mask())
        x = self.drop(run, x)
        for block in self.h.children.values():
            x = block(run, x, shared)
        x = self.ln_f(run, x)
        return view(x, (-1, *x.shape[1:]))


class CausalLM(Module):
    """`transformer` and `lm_head`."""

    transformers_class = "ForCausalLM"
    takes_gradient = False

    def __init__(self, c: Config, transformer: Module, embedding: Embedding, *, bias: bool = False) -> None:
        super().__init__()
        self.transformer = transformer
        self.lm_head = Head(c, embedding, bias=bias)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return next_token_loss(run, self.transformer, self.lm_head, ids)


class LMHeadModel(CausalLM):
    transformers_class = "LMHeadModel"


def build(c: GPT2Config) -> Module:
    def block() -> Module:
        return Block(c, Attention(c), MLP(c), Attention(c, cross=True) if c.add_cross_attention else None)

    transformer = Transformer(c, block)
    return LMHeadModel(c, transformer, transformer.wte)
