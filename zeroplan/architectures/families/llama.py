"""Llama: RMSNorm, rotary attention with grouped keys and values, gated MLP, no biases by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import apply_positions, apply_rotary_pos_emb, attention_forward, split_heads
from zeroplan.architectures.causal import next_token_loss
from zeroplan.architectures.config import Config
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import (
    SAVES,
    Activation,
    Embedding,
    GradientCheckpointingLayer,
    Linear,
    Module,
    ModuleList,
    Unary,
)
from zeroplan.architectures.norms import RMSNorm
from zeroplan.architectures.rope import RotaryConfig, RotaryEmbedding
from zeroplan.autograd.elementwise import add, mul
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import contiguous, reshape


@dataclass(kw_only=True, eq=False, repr=False)
class LlamaConfig(RotaryConfig):
    """config.json of model_type llama."""

    divides_heads: ClassVar[bool] = True

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_dropout: float | None = 0.0
    mlp_bias: bool = False
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        self.head_dim = self.head_width


class Attention(Module):
    """q, k, v and o projections; the query width is heads × head_dim, which may differ from hidden_size.

    Its input comes under a name, not by position.
    """

    transformers_class = "Attention"
    eager_returns = 1
    takes_gradient = False
    turns = staticmethod(apply_rotary_pos_emb)

    def __init__(self, c: Config, *, qkv_bias: bool, o_bias: bool) -> None:
        super().__init__()
        queries, keys = c.num_attention_heads * c.head_width, c.kv_heads * c.head_width
        self.q_proj = Linear(c.hidden_size, queries, bias=qkv_bias)
        self.k_proj = Linear(c.hidden_size, keys, bias=qkv_bias)
        self.v_proj = Linear(c.hidden_size, keys, bias=qkv_bias)
        self.o_proj = Linear(queries, c.hidden_size, bias=o_bias)
        self.head_width = c.head_width
        self.dropout = c.attention_dropout or 0.0
        self.softcap = bool(getattr(c, "attn_logit_softcapping", None))

    def heads(self, x: Tensor) -> Tensor:
        """[b, s, n·d] as [b, n, s, d]."""
        return split_heads(x, self.head_width)

    def projected(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, head by head."""
        q = self.heads(self.q_proj(run, x))
        k = self.heads(self.k_proj(run, x))
        return q, k, self.heads(self.v_proj(run, x))

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        assert shared.rope is not None
        q, k, v = self.projected(run, x)
        q, k = apply_positions(run, q, k, shared.rope, self.turns)
        out, weights = attention_forward(
            run, q, k, v, shared.mask, shared.positions, dropout=self.dropout, softcap=self.softcap, local=shared.local
        )
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        return self.o_proj(run, out), weights


class GatedMLP(Module):
    """down(act(gate(x)) · up(x))."""

    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("gate_proj", "act_fn", "up_proj", SAVES, "down_proj")
    liger_order = ("gate_proj", "up_proj", SAVES, "down_proj")

    def __init__(self, c: Config, ffn: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = Linear(c.hidden_size, ffn, bias=bias)
        self.up_proj = Linear(c.hidden_size, ffn, bias=bias)
        self.down_proj = Linear(ffn, c.hidden_size, bias=bias)
        self.act_fn = Activation(c.hidden_act)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        if run.liger:
            from zeroplan.autograd.liger import gated

            return self.down_proj(run, gated(self.gate_proj(run, x), self.up_proj(run, x)))
        return self.down_proj(run, mul(self.act_fn(run, self.gate_proj(run, x)), self.up_proj(run, x)))


class Layer(GradientCheckpointingLayer):
    """Attention and MLP, each after its own norm; what the families put into the two differs."""

    transformers_class = "DecoderLayer"
    forward_order: tuple[str, ...] = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")

    def __init__(self, c: Config, self_attn: Module, mlp: Module, norm: Callable[[int], Unary] = RMSNorm) -> None:
        super().__init__()
        self.self_attn = self_attn
        self.mlp = mlp
        self.input_layernorm = norm(c.hidden_size)
        self.post_attention_layernorm = norm(c.hidden_size)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x = self.input_layernorm(run, x)
        x, _weights = self.self_attn(run, x, shared)
        x = add(residual, x)
        residual = x
        x = self.post_attention_layernorm(run, x)
        x = self.mlp(run, x)
        return add(residual, x)


class Decoder(Module):
    """Token embedding, the layers, a final norm, rotary frequencies: `model` of most families."""

    transformers_class = "Model"
    forward_order: tuple[str, ...] = ("embed_tokens", "rotary_emb", "layers", "norm")
    takes_gradient = False

    def __init__(
        self,
        c: RotaryConfig,
        layers: list[Module],
        norm: Callable[[int], Unary] = RMSNorm,
        embedding: Callable[[int, int], Embedding] = Embedding,
        rotary: Callable[[RotaryConfig], RotaryEmbedding] = RotaryEmbedding,
    ) -> None:
        super().__init__()
        self.embed_tokens = embedding(c.vocab_size, c.hidden_size)
        self.layers = ModuleList(layers)
        self.norm = norm(c.hidden_size)
        self.rotary_emb = rotary(c)
        self.windows, self.kinds = c.windows(), c.kinds()
        for kind, layer in zip(self.kinds, layers, strict=True):
            layer.kind = kind

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        embedded = self.embed_tokens(run, ids)
        positions = run.positions()
        masks = {kind: run.mask(window) for kind, window in self.windows.items()}
        ropes = {kind: self.rotary_emb(run, embedded, positions, kind) for kind in self.rotary_emb.widths}
        x = embedded
        for kind, layer in zip(self.kinds, self.layers.children.values(), strict=True):
            window = self.windows[kind]
            local = window is not None and run.seq > window
            shared = LayerInputs(positions, masks[kind], ropes[kind if kind in ropes else ""], local)
            x = layer(run, x, shared)
        return self.norm(run, x)


class Head(Linear):
    """`lm_head`; tied, its weight is the embedding's own. A bias stays a parameter of the head."""

    def __init__(self, c: Config, embedding: Embedding, *, bias: bool = False) -> None:
        super().__init__(embedding.width, c.vocab_size, bias=bias)
        if c.tie_word_embeddings:
            self.weight = embedding.weight


class CausalLM(Module):
    """`model` and `lm_head`."""

    transformers_class = "ForCausalLM"
    takes_gradient = False
    fuses = "lm_head"
    liger_budget: ClassVar[int] = 1
    """Logits that Liger's fused loss has at once, in sizes of its input."""

    def __init__(self, c: Config, model: Decoder) -> None:
        super().__init__()
        self.model = model
        self.lm_head = Head(c, model.embed_tokens)
        self.softcap = bool(getattr(c, "final_logit_softcapping", None))

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return next_token_loss(run, self.model, self.lm_head, ids, softcap=self.softcap, budget=self.liger_budget)


def build(c: LlamaConfig) -> Module:
    layers: list[Module] = [
        Layer(
            c,
            Attention(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias),
            GatedMLP(c, c.ffn, bias=c.mlp_bias),
        )
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers))
