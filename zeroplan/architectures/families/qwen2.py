"""Qwen 2 and 2.5: Llama with biases on q, k and v, always, and a window from layer max_window_layers on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.module import Module
from zeroplan.architectures.rope import RotaryConfig


@dataclass(kw_only=True)
class WindowedConfig(RotaryConfig):
    """Qwen's window: only where use_sliding_window says so, in the layers that come last."""

    window_stated: ClassVar[str] = "use_sliding_window: true and a sliding_window"

    num_key_value_heads: int | None = 32
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: list[str] | None = None

    def derive(self) -> None:
        super().derive()
        if not self.use_sliding_window:
            self.sliding_window = None
        if self.layer_types is None:
            windowed, first = self.sliding_window is not None, self.max_window_layers
            self.layer_types = self.each_layer(
                lambda index: "sliding_attention" if windowed and index >= first else "full_attention"
            )

    def windows(self) -> dict[str, int | None]:
        full: dict[str, int | None] = {"full_attention": None}
        return full | ({"sliding_attention": self.sliding_window} if "sliding_attention" in self.kinds() else {})

    def kinds(self) -> list[str]:
        return list(self.layer_types or ())


@dataclass(kw_only=True)
class Qwen2Config(WindowedConfig):
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})

    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 22016
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    tie_word_embeddings: bool = False
    attention_dropout: float = 0.0
    pad_token_id: int | None = None


def build(c: Qwen2Config) -> Module:
    layers: list[Module] = [
        Layer(c, Attention(c, qkv_bias=True, o_bias=False), GatedMLP(c, c.ffn)) for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers))
