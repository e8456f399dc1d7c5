"""GPT-NeoX and Pythia: fused query_key_value, biases, norms side by side, partial rotary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import apply_partial_rotary_jointly, attention_forward, split_heads
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
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import chunk, contiguous, reshape


@dataclass(kw_only=True)
class GPTNeoXConfig(RotaryConfig):
    """`head_dim`, which the class does not declare, is read for the rotary frequencies only."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "rope_theta": ("rotary_emb_base",),
        "partial_rotary_factor": ("rotary_pct",),
        "residual_dropout": ("hidden_dropout",),
    }
    divides_heads: ClassVar[bool] = True
    rotates_part: ClassVar[bool] = True

    vocab_size: int = 50432
    hidden_size: int = 6144
    intermediate_size: int = 24576
    num_hidden_layers: int = 44
    num_attention_heads: int = 64
    head_dim: int | None = None
    hidden_act: str = "gelu"
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    attention_bias: bool = True
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    use_parallel_residual: bool = True
    partial_rotary_factor: float = 0.25

    def derive(self) -> None:
        super().derive()
        self.embedding_dropout = self.residual_dropout

    @property
    def head_width(self) -> int:
        return self.hidden_size // max(self.num_attention_heads, 1)


class Attention(Module):
    """Queries, keys and values of one head lie together in query_key_value."""

    transformers_class = "Attention"
    eager_returns = 1

    def __init__(self, c: GPTNeoXConfig) -> None:
        super().__init__()
        self.query_key_value = Linear(c.hidden_size, 3 * c.hidden_size, bias=c.attention_bias)
        self.dense = Linear(c.hidden_size, c.hidden_size, bias=c.attention_bias)
        self.head_width, self.dropout = c.head_width, c.attention_dropout or 0.0

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        assert shared.rope is not None
        fused = split_heads(self.query_key_value(run, x), 3 * self.head_width)
        q, k, v = chunk(fused, 3, -1)
        q, k = apply_partial_rotary_jointly(q, k, shared.rope)
        out, weights = attention_forward(run, q, k, v, shared.mask, shared.positions, dropout=self.dropout)
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        return self.dense(run, out), weights


class MLP(Module):
    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("dense_h_to_4h", "act", "dense_4h_to_h")

    def __init__(self, c: GPTNeoXConfig) -> None:
        super().__init__()
        self.dense_h_to_4h = Linear(c.hidden_size, c.ffn, bias=True)
        self.dense_4h_to_h = Linear(c.ffn, c.hidden_size, bias=True)
        self.act = Activation(c.hidden_act)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.dense_h_to_4h(run, x)
        x = self.act(run, x)
        return self.dense_4h_to_h(run, x)


class Layer(GradientCheckpointingLayer):
    """The norms are registered before what they feed."""

    transformers_class = "Layer"
    forward_order: tuple[str, ...] = (
        "input_layernorm", "attention", "post_attention_dropout",
        "post_attention_layernorm", "mlp", "post_mlp_dropout",
    )  # fmt: skip

    def __init__(self, c: GPTNeoXConfig) -> None:
        super().__init__()
        self.input_layernorm = LayerNorm(c.hidden_size)
        self.post_attention_layernorm = LayerNorm(c.hidden_size)
        self.post_attention_dropout = Dropout(c.residual_dropout)
        self.post_mlp_dropout = Dropout(c.residual_dropout)
        self.attention = Attention(c)
        self.mlp = MLP(c)
        self.parallel = c.use_parallel_residual

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        attention, _weights = self.attention(run, self.input_layernorm(run, x), shared)
        attention = self.post_attention_dropout(run, attention)
        if self.parallel:
            mlp = self.mlp(run, self.post_attention_layernorm(run, x))
            mlp = self.post_mlp_dropout(run, mlp)
            return add(add(mlp, attention), x)
        attention = add(attention, x)
        mlp = self.mlp(run, self.post_attention_layernorm(run, attention))
        mlp = self.post_mlp_dropout(run, mlp)
        return add(mlp, attention)


class Decoder(Module):
    transformers_class = "Model"
    forward_order: tuple[str, ...] = ("embed_in", "emb_dropout", "rotary_emb", "layers", "final_layer_norm")
    takes_gradient = False

    def __init__(self, c: GPTNeoXConfig) -> None:
        super().__init__()
        self.embed_in = Embedding(c.vocab_size, c.hidden_size)
        self.emb_dropout = Dropout(c.residual_dropout)
        self.layers = ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.final_layer_norm = LayerNorm(c.hidden_size)
        self.rotary_emb = RotaryEmbedding(c)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.embed_in(run, ids)
        positions = run.positions()
        mask = run.mask()
        x = self.emb_dropout(run, embedded)
        shared = LayerInputs(positions, mask, self.rotary_emb(run, x, positions))
        for layer in self.layers.children.values():
            x = layer(run, x, shared)
        return self.final_layer_norm(run, x)


class CausalLM(Module):
    """`gpt_neox` and `lm_head` (embed_out, before transformers 5)."""

    transformers_class = "ForCausalLM"
    takes_gradient = False

    def __init__(self, c: GPTNeoXConfig) -> None:
        super().__init__()
        self.gpt_neox = Decoder(c)
        self.lm_head = Head(c, self.gpt_neox.embed_in)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return next_token_loss(run, self.gpt_neox, self.lm_head, ids)


def build(c: GPTNeoXConfig) -> Module:
    return CausalLM(c)
