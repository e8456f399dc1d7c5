"""GPT-BigCode (StarCoder 1): GPT-2 with plain linear layers and, by default, one key-value head for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from zeroplan.architectures.attention import attention_forward
from zeroplan.architectures.families.gpt2 import MLP, Block, CausalLM, GPTConfig, Transformer
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import (
    Buffer,
    Dropout,
    Linear,
    Module,
)
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import contiguous, reshape, split, transpose, unsqueeze, view
from zeroplan.errors import SpecError


@dataclass(kw_only=True)
class GPTBigCodeConfig(GPTConfig):
    vocab_size: int = 50257
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    hidden_act: str = "gelu_pytorch_tanh"
    scale_attn_weights: bool = True
    attention_softmax_in_fp32: bool = True
    scale_attention_softmax_in_fp32: bool = True
    multi_query: bool = True
    add_cross_attention: bool = False

    def derive(self) -> None:
        super().derive()
        self.num_key_value_heads = 1 if self.multi_query else self.num_attention_heads

    def check_heads(self, place: str) -> None:
        super().check_heads(place)
        if self.add_cross_attention and self.multi_query:
            found = "add_cross_attention with multi_query"
            raise SpecError(place, found, "one of them", "multi_query: false")


class Attention(Module):
    """Queries of all heads, keys and values of the key-value heads, from one matrix."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("c_attn", "c_proj", "resid_dropout")

    def __init__(self, c: GPTBigCodeConfig, *, cross: bool = False) -> None:
        super().__init__()
        fused = 2 * c.hidden_size if cross else c.hidden_size + 2 * c.kv_heads * c.head_width
        self.c_attn = Linear(c.hidden_size, fused, bias=True)
        if cross:
            self.q_attn = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.c_proj = Linear(c.hidden_size, c.hidden_size, bias=True)
        self.resid_dropout = Dropout(c.residual_dropout)
        self.queries, self.keys = c.hidden_size, c.kv_heads * c.head_width
        self.head_width, self.multi_query = c.head_width, c.multi_query
        self.dropout = c.attention_dropout

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        if self.multi_query:
            q, k, v = split(unsqueeze(self.c_attn(run, x), 1), (self.queries, self.keys, self.keys), 3)
            q = transpose(view(q, (*x.shape[:-1], -1, self.head_width)), 1, 2)
        else:
            fused = view(self.c_attn(run, x), (*x.shape[:2], -1, 3 * self.head_width))
            q, k, v = split(transpose(fused, 1, 2), (self.head_width,) * 3, 3)
            del fused
        out, weights = attention_forward(run, q, k, v, shared.mask, dropout=self.dropout)
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        out = self.c_proj(run, out)
        return self.resid_dropout(run, out), weights


class MaskedTransformer(Transformer):
    """GPT-2's, with the causal mask of the longest sequence as a buffer."""

    gives_positions = False

    def __init__(self, c: GPTBigCodeConfig) -> None:
        super().__init__(c, partial(block, c))
        self.bias = Buffer((c.max_position_embeddings, c.max_position_embeddings), "bool")


class KeywordBlock(Block):
    """GPT-2's, called otherwise."""

    mask_by_position = False


def block(c: GPTBigCodeConfig) -> Block:
    """GPT-2's, with plain linear layers."""
    mlp = MLP(c, partial(Linear, bias=True))
    return KeywordBlock(c, Attention(c), mlp, Attention(c, cross=True) if c.add_cross_attention else None)


def build(c: GPTBigCodeConfig) -> Module:
    transformer = MaskedTransformer(c)
    return CausalLM(c, transformer, transformer.wte)
