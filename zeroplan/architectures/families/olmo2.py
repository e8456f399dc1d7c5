"""OLMo 2: norms after attention and MLP only, and on queries and keys across all heads at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import apply_rotary_pos_emb_and_cast
from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import GradientCheckpointingLayer, Module
from zeroplan.architectures.norms import LateCastNorm
from zeroplan.architectures.rope import RotaryConfig, WideRotary
from zeroplan.autograd.elementwise import add
from zeroplan.autograd.tensor import Tensor


@dataclass(kw_only=True)
class Olmo2Config(RotaryConfig):
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})

    vocab_size: int = 50304
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
    attention_dropout: float = 0.0
    pad_token_id: int | None = 1


class SeparateNorm(LateCastNorm):
    """Liger's kernel gives its input's gradient a storage of its own."""

    liger_in_place = False


class UnpatchedNorm(LateCastNorm):
    """Norms that Liger passes over in a model that is there already."""

    liger_patches = False


class WideNormedAttention(Attention):
    """The norms are as wide as all queries and all keys."""

    forward_order: tuple[str, ...] = ("q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj")
    turns = staticmethod(apply_rotary_pos_emb_and_cast)

    def __init__(self, c: Olmo2Config) -> None:
        super().__init__(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias)
        self.q_norm = UnpatchedNorm(c.num_attention_heads * c.head_width)
        self.k_norm = UnpatchedNorm(c.kv_heads * c.head_width)

    def projected(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = self.q_norm(run, self.q_proj(run, x)), self.k_norm(run, self.k_proj(run, x))
        v = self.v_proj(run, x)
        return self.heads(q), self.heads(k), self.heads(v)


class Layer(GradientCheckpointingLayer):
    """x + norm(attention(x)), then x + norm(mlp(x))."""

    transformers_class = "DecoderLayer"
    forward_order: tuple[str, ...] = ("self_attn", "post_attention_layernorm", "mlp", "post_feedforward_layernorm")

    def __init__(self, c: Olmo2Config) -> None:
        super().__init__()
        self.self_attn = WideNormedAttention(c)
        self.mlp = GatedMLP(c, c.ffn)
        self.post_attention_layernorm = SeparateNorm(c.hidden_size)
        self.post_feedforward_layernorm = SeparateNorm(c.hidden_size)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x, _weights = self.self_attn(run, x, shared)
        x = self.post_attention_layernorm(run, x)
        x = add(residual, x)
        residual = x
        x = self.mlp(run, x)
        x = self.post_feedforward_layernorm(run, x)
        return add(residual, x)


def build(c: Olmo2Config) -> Module:
    layers: list[Module] = [Layer(c) for _ in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers, norm=LateCastNorm, rotary=WideRotary))
