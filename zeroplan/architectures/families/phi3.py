"""Phi 3 and 4: Llama with q, k, v in one matrix and gate, up in another; long ropes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import apply_partial_rotary, apply_positions, attention_forward, split_heads
from zeroplan.architectures.families.llama import CausalLM, Decoder, Layer
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import Activation, Dropout, Linear, Module
from zeroplan.architectures.rope import RotaryConfig, Settings
from zeroplan.autograd.elementwise import add, mul
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import chunk, contiguous, narrow, reshape
from zeroplan.errors import SpecError, shown


@dataclass(kw_only=True)
class Phi3Config(RotaryConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "residual_dropout": ("resid_pdrop",),
        "embedding_dropout": ("embd_pdrop",),
    }
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})
    rotates_part: ClassVar[bool] = True

    vocab_size: int = 32064
    hidden_size: int = 3072
    intermediate_size: int = 8192
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    original_max_position_embeddings: int = 4096
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    sliding_window: int | None = None
    partial_rotary_factor: float = 1.0
    pad_token_id: int | None = 32000

    def windows(self) -> dict[str, int | None]:
        return {"": self.sliding_window}

    def completed(self, settings: Settings) -> Settings:
        """`su` and `yarn` are former names of longrope; the length stands outside the settings."""
        settings = super().completed(settings)
        if settings["rope_type"] in ("longrope", "yarn", "llama3"):
            settings["original_max_position_embeddings"] = self.original_max_position_embeddings
        if settings["rope_type"] in ("su", "yarn"):
            settings["rope_type"] = "longrope"
        return settings

    def validate(self, place: str) -> None:
        super().validate(place)
        settings = self.rope()
        kind = settings["rope_type"]
        if kind not in ("default", "longrope"):
            raise SpecError(place, f"rope_type = {kind}", "default or longrope (transformers refuses others)")
        turned = int(self.hidden_size // self.num_attention_heads * settings["partial_rotary_factor"])
        for name in ("short_factor", "long_factor"):
            given = settings.get(name)
            if given is not None and (not isinstance(given, list) or len(given) != turned // 2):
                raise SpecError(place, f"{name} = {shown(given)}", f"{turned // 2} numbers")


class Attention(Module):
    """The output projection is registered first, then the fused one. Its input comes under a name."""

    transformers_class = "Attention"
    eager_returns = 1
    forward_order: tuple[str, ...] = ("qkv_proj", "o_proj")
    takes_gradient = False

    def __init__(self, c: Phi3Config) -> None:
        super().__init__()
        queries, keys = c.num_attention_heads * c.head_width, c.kv_heads * c.head_width
        self.o_proj = Linear(queries, c.hidden_size, bias=False)
        self.qkv_proj = Linear(c.hidden_size, queries + 2 * keys, bias=False)
        self.queries, self.keys, self.head_width = queries, keys, c.head_width
        self.dropout = c.attention_dropout

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        assert shared.rope is not None
        fused = self.qkv_proj(run, x)
        q = narrow(fused, -1, self.queries)
        k = narrow(fused, -1, self.keys, start=self.queries)
        v = narrow(fused, -1, self.keys, start=self.queries + self.keys)
        width = self.head_width
        q, k, v = split_heads(q, width), split_heads(k, width), split_heads(v, width)
        q, k = apply_positions(run, q, k, shared.rope, apply_partial_rotary)
        out, weights = attention_forward(run, q, k, v, shared.mask, shared.positions, dropout=self.dropout)
        out = contiguous(reshape(out, (*x.shape[:-1], -1)))
        return self.o_proj(run, out), weights


class FusedMLP(Module):
    """GatedMLP with gate and up as one matrix."""

    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("gate_up_proj", "activation_fn", "down_proj")
    liger_order = ("gate_up_proj", "down_proj")

    def __init__(self, c: Phi3Config) -> None:
        super().__init__()
        self.gate_up_proj = Linear(c.hidden_size, 2 * c.ffn, bias=False)
        self.down_proj = Linear(c.ffn, c.hidden_size, bias=False)
        self.activation_fn = Activation(c.hidden_act)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        up = self.gate_up_proj(run, x)
        gate, up = chunk(up, 2, -1)
        if run.liger:
            from zeroplan.autograd.liger import gated

            return self.down_proj(run, gated(gate, up))
        up = mul(up, self.activation_fn(run, gate))
        return self.down_proj(run, up)


class DroppedLayer(Layer):
    """A dropout after each half."""

    forward_order: tuple[str, ...] = (
        "input_layernorm", "self_attn", "resid_attn_dropout",
        "post_attention_layernorm", "mlp", "resid_mlp_dropout",
    )  # fmt: skip

    def __init__(self, c: Phi3Config) -> None:
        super().__init__(c, Attention(c), FusedMLP(c))
        self.resid_attn_dropout = Dropout(c.residual_dropout)
        self.resid_mlp_dropout = Dropout(c.residual_dropout)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x = self.input_layernorm(run, x)
        x, _weights = self.self_attn(run, x, shared)
        x = add(residual, self.resid_attn_dropout(run, x))
        residual = x
        x = self.post_attention_layernorm(run, x)
        x = self.mlp(run, x)
        return add(residual, self.resid_mlp_dropout(run, x))


def build(c: Phi3Config) -> Module:
    layers: list[Module] = [DroppedLayer(c) for _ in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers))
