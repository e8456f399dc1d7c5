"""OPT: learned positions from row 2 on, biases, norms before or after; 350m has narrower word embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import attention_forward, split_heads
from zeroplan.architectures.causal import next_token_loss
from zeroplan.architectures.config import Config
from zeroplan.architectures.families.llama import Head
from zeroplan.architectures.forward_run import FLOAT, LONG, ForwardRun, LayerInputs
from zeroplan.architectures.module import Activation, Embedding, GradientCheckpointingLayer, Linear, Module, ModuleList
from zeroplan.architectures.norms import LayerNorm
from zeroplan.autograd.elementwise import add, add_scalar, apply_dropout, mul_scalar
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import contiguous, reshape, view

POSITION_OFFSET = 2


@dataclass(kw_only=True)
class OPTConfig(Config):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "intermediate_size": ("ffn_dim",),
        "hidden_act": ("activation_function",),
        "residual_dropout": ("dropout",),
        "remove_final_layer_norm": ("_remove_final_layer_norm",),
    }
    divides_heads: ClassVar[bool] = True

    vocab_size: int = 50272
    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    hidden_act: str = "relu"
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = True
    do_layer_norm_before: bool = True
    remove_final_layer_norm: bool = False
    word_embed_proj_dim: int | None = None
    residual_dropout: float = 0.1
    attention_dropout: float = 0.0
    layerdrop: float = 0.0
    enable_bias: bool = True
    layer_norm_elementwise_affine: bool = True
    pad_token_id: int | None = 1

    def derive(self) -> None:
        super().derive()
        if self.word_embed_proj_dim is None:
            self.word_embed_proj_dim = self.hidden_size


class PositionalEmbedding(Embedding):
    """Rows are taken from an offset on."""

    transformers_class = "LearnedPositionalEmbedding"

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return super().forward(run, add_scalar(ids))


class Attention(Module):
    """Keys, values and queries are registered in this order. Its input comes under a name, not by position."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "out_proj")
    takes_gradient = False

    def __init__(self, c: OPTConfig) -> None:
        super().__init__()
        self.k_proj = Linear(c.hidden_size, c.hidden_size, bias=c.enable_bias)
        self.v_proj = Linear(c.hidden_size, c.hidden_size, bias=c.enable_bias)
        self.q_proj = Linear(c.hidden_size, c.hidden_size, bias=c.enable_bias)
        self.out_proj = Linear(c.hidden_size, c.hidden_size, bias=c.enable_bias)
        self.head_width, self.dropout = c.head_width, c.attention_dropout or 0.0

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        q = mul_scalar(self.q_proj(run, x))
        q = split_heads(q, self.head_width)
        k = self.k_proj(run, x)
        v = self.v_proj(run, x)
        k = split_heads(k, self.head_width)
        v = split_heads(v, self.head_width)
        out, weights = attention_forward(run, q, k, v, shared.mask, shared.positions, dropout=self.dropout)
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        return self.out_proj(run, out), weights


class Layer(GradientCheckpointingLayer):
    """The MLP's two matrices are the layer's own; each norm comes before its half or after it."""

    transformers_class = "DecoderLayer"

    def __init__(self, c: OPTConfig) -> None:
        super().__init__()
        self.self_attn = Attention(c)
        self.activation_fn = Activation(c.hidden_act)
        self.self_attn_layer_norm = LayerNorm(c.hidden_size, affine=c.layer_norm_elementwise_affine)
        self.fc1 = Linear(c.hidden_size, c.ffn, bias=c.enable_bias)
        self.fc2 = Linear(c.ffn, c.hidden_size, bias=c.enable_bias)
        self.final_layer_norm = LayerNorm(c.hidden_size, affine=c.layer_norm_elementwise_affine)
        if c.do_layer_norm_before:
            norms_first = ("self_attn_layer_norm", "self_attn", "final_layer_norm", "fc1", "activation_fn", "fc2")
            self.forward_order = norms_first
            self.saves_last = c.residual_dropout > 0
        else:
            norms_last = ("self_attn", "self_attn_layer_norm", "fc1", "activation_fn", "fc2", "final_layer_norm")
            self.forward_order = norms_last
        self.norms_first, self.dropout = c.do_layer_norm_before, c.residual_dropout

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        if self.norms_first:
            x = self.self_attn_layer_norm(run, x)
        x, _weights = self.self_attn(run, x, shared)
        x = apply_dropout(x, self.dropout, on_cpu=run.on_cpu)
        x = add(residual, x)
        if not self.norms_first:
            x = self.self_attn_layer_norm(run, x)
        shape = x.shape
        x = reshape(x, (-1, shape[-1]))
        residual = x
        if self.norms_first:
            x = self.final_layer_norm(run, x)
        x = self.fc1(run, x)
        x = self.activation_fn(run, x)
        x = self.fc2(run, x)
        x = apply_dropout(x, self.dropout, on_cpu=run.on_cpu)
        x = view(add(residual, x), shape)
        return x if self.norms_first else self.final_layer_norm(run, x)


class Decoder(Module):
    """Where word_embed_proj_dim differs from hidden_size, two matrices lead in and out."""

    transformers_class = "Decoder"
    forward_order: tuple[str, ...] = (
        "embed_tokens", "embed_positions", "project_in", "layers", "final_layer_norm", "project_out",
    )  # fmt: skip
    takes_gradient = False

    def __init__(self, c: OPTConfig) -> None:
        super().__init__()
        assert c.word_embed_proj_dim is not None
        self.embed_tokens = Embedding(c.vocab_size, c.word_embed_proj_dim)
        self.embed_positions = PositionalEmbedding(c.max_position_embeddings + POSITION_OFFSET, c.hidden_size)
        if c.word_embed_proj_dim != c.hidden_size:
            self.project_out = Linear(c.hidden_size, c.word_embed_proj_dim, bias=False)
            self.project_in = Linear(c.word_embed_proj_dim, c.hidden_size, bias=False)
        if c.do_layer_norm_before and not c.remove_final_layer_norm:
            self.final_layer_norm = LayerNorm(c.hidden_size, affine=c.layer_norm_elementwise_affine)
        self.layers = ModuleList(Layer(c) for _ in range(c.num_hidden_layers))

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.embed_tokens(run, ids)
        seen = empty(run, (run.batch, run.seq), FLOAT)
        positions = empty(run, seen.shape, LONG)
        mask = run.mask()
        places = self.embed_positions(run, positions)
        if "project_in" in self.children:
            embedded = self.project_in(run, embedded)
        x = add(embedded, places)
        shared = LayerInputs(positions, mask)
        for layer in self.layers.children.values():
            x = layer(run, x, shared)
        if "final_layer_norm" in self.children:
            x = self.final_layer_norm(run, x)
        return self.project_out(run, x) if "project_out" in self.children else x


class Model(Module):
    """Passed over: the head takes what its decoder returns."""

    transformers_class = "Model"
    called = False

    def __init__(self, c: OPTConfig) -> None:
        super().__init__()
        self.decoder = Decoder(c)


class CalledModel(Model):
    """With a head that classifies it is called itself."""

    called = True
    takes_gradient = False

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        output: Tensor = self.decoder(run, ids)
        return output


class CausalLM(Module):
    transformers_class = "ForCausalLM"
    takes_gradient = False

    def __init__(self, c: OPTConfig) -> None:
        super().__init__()
        self.model = Model(c)
        self.lm_head = Head(c, self.model.decoder.embed_tokens)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return next_token_loss(run, self.model.decoder, self.lm_head, ids)


def build(c: OPTConfig) -> Module:
    return CausalLM(c)
