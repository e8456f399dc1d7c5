"""OLMo: Llama whose norms have no parameters at all; queries, keys and values may be clipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.attention import apply_rotary_pos_emb_and_cast
from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.architectures.norms import LayerNorm
from zeroplan.architectures.rope import RotaryConfig, WideRotary
from zeroplan.autograd.elementwise import clamp_, to
from zeroplan.autograd.norms import FLOAT, layer_norm
from zeroplan.autograd.tensor import Tensor


@dataclass(kw_only=True)
class OlmoConfig(RotaryConfig):
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
    clip_qkv: float | None = None
    pad_token_id: int | None = 1
    @property
    def changes_products(self) -> str:
        return "" if self.clip_qkv is None else "clips queries, keys and values in place (clip_qkv)"


class PlainNorm(LayerNorm):
    """LayerNorm without weight and bias."""

    transformers_class = "LayerNorm"

    def __init__(self, width: int) -> None:
        super().__init__(width, affine=False)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return to(layer_norm(to(x, FLOAT), on_cpu=run.on_cpu), x.width)


class ClippedAttention(Attention):
    """Queries, keys and values are clipped where clip_qkv says so; the rope is in fp32."""

    turns = staticmethod(apply_rotary_pos_emb_and_cast)

    def __init__(self, c: OlmoConfig) -> None:
        super().__init__(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias)
        self.clips = c.clip_qkv is not None

    def projected(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.q_proj(run, x), self.k_proj(run, x), self.v_proj(run, x)
        if self.clips:
            q, k, v = clamp_(q), clamp_(k), clamp_(v)
        return self.heads(q), self.heads(k), self.heads(v)


def build(c: OlmoConfig) -> Module:
    layers: list[Module] = [
        Layer(
            c,
            ClippedAttention(c),
            GatedMLP(c, c.ffn),
            norm=PlainNorm,
        )
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers, norm=PlainNorm, rotary=WideRotary))
