"""Mistral: Llama with a sliding window, 8 key-value heads unless told otherwise, and never a bias."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.module import Module
from zeroplan.architectures.rope import RotaryConfig


@dataclass(kw_only=True)
class MistralConfig(RotaryConfig):
    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 131072
    tie_word_embeddings: bool = False
    sliding_window: int | None = 4096
    attention_dropout: float = 0.0
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        self.head_dim = self.head_width

    def windows(self) -> dict[str, int | None]:
        return {"": self.sliding_window}


def build(c: MistralConfig) -> Module:
    layers: list[Module] = [
        Layer(c, Attention(c, qkv_bias=False, o_bias=False), GatedMLP(c, c.ffn)) for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers))
