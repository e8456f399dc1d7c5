"""Gemma 3, its text tower: Gemma 2's layer with query and key norms, and a rope for each kind of layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.gemma import ScaledEmbedding
from zeroplan.architectures.families.gemma2 import FourNormLayer
from zeroplan.architectures.families.llama import CausalLM, Decoder, GatedMLP
from zeroplan.architectures.families.qwen3 import NormedAttention
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.architectures.norms import SeparateUnitOffsetNorm
from zeroplan.architectures.rope import RotaryConfig, Settings
from zeroplan.autograd.tensor import Tensor
from zeroplan.errors import SpecError, shown


@dataclass(kw_only=True)
class Gemma3TextConfig(RotaryConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"hidden_act": ("hidden_activation",)}
    divides_heads: ClassVar[bool] = True

    vocab_size: int = 262208
    hidden_size: int = 2304
    intermediate_size: int = 9216
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 131072
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    attention_dropout: float | None = 0.0
    query_pre_attn_scalar: int = 256
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 6
    layer_types: list[str] | None = None
    final_logit_softcapping: float | None = None
    attn_logit_softcapping: float | None = None
    use_bidirectional_attention: bool | None = False
    rope_theta: float = 1000000.0
    rope_local_base_freq: float = 10000.0
    pad_token_id: int | None = 0

    def derive(self) -> None:
        super().derive()
        if self.use_bidirectional_attention and self.sliding_window is not None:
            self.sliding_window = self.sliding_window // 2 + 1
        if self.layer_types is None:
            every = max(self.sliding_window_pattern, 1)
            self.layer_types = self.each_layer(
                lambda index: "sliding_attention" if (index + 1) % every else "full_attention"
            )

    def windows(self) -> dict[str, int | None]:
        return {"full_attention": None, "sliding_attention": self.sliding_window}

    def kinds(self) -> list[str]:
        return list(self.layer_types or ())

    def ropes(self) -> dict[str, Settings]:
        """By layer type; settings not nested under one are ignored, `rope_scaling` is for full layers."""
        nested = self.rope_parameters or {}
        bases = {"full_attention": self.rope_theta, "sliding_attention": self.rope_local_base_freq}
        ropes = {}
        for kind in sorted(set(self.layer_types or ())):
            settings = dict(nested.get(kind) or {"rope_type": "default"})
            if kind == "full_attention" and self.rope_scaling:
                settings = self.scaled(settings)
            if kind in bases:
                settings.setdefault("rope_theta", bases[kind])
            if self.partial_rotary_factor is not None:
                settings.setdefault("partial_rotary_factor", self.partial_rotary_factor)
            ropes[f"{kind}_"] = self.completed(settings)
        return ropes

    def scaled(self, settings: Settings) -> Settings:
        """With `rope_scaling` laid over them; the former `type` does not replace `rope_type: default`."""
        return settings | (self.rope_scaling or {})

    def check_names(self, place: str) -> None:
        super().check_names(place)
        nested = self.rope_parameters or {}
        for kind in self.layer_types or ():
            if kind not in ("full_attention", "sliding_attention") and kind not in nested:
                found = f"layer type {kind} without rope_parameters.{kind}"
                raise SpecError(place, found, "settings for each type")
            if not isinstance(nested.get(kind), dict | None):
                raise SpecError(place, f"rope_parameters.{kind} = {shown(nested[kind])}", "a mapping or null")
        if self.use_bidirectional_attention and self.sliding_window is None:
            raise SpecError(place, "use_bidirectional_attention without sliding_window", "a sliding_window")


class TextDecoder(Decoder):
    """The frequencies are asked for once for each kind of layer."""

    transformers_class = "TextModel"

    def __init__(self, c: Gemma3TextConfig, layers: list[Module]) -> None:
        super().__init__(c, layers, norm=SeparateUnitOffsetNorm, embedding=ScaledEmbedding)
        self.forward_order = ("embed_tokens", *("rotary_emb" for _ in c.ropes()), "layers", "norm")


class LateNormedAttention(NormedAttention):
    """All three projections, then the norms."""

    forward_order: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj")
    norm = SeparateUnitOffsetNorm

    def projected(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k = self.heads(self.q_proj(run, x)), self.heads(self.k_proj(run, x))
        v = self.heads(self.v_proj(run, x))
        q = self.q_norm(run, q)
        return q, self.k_norm(run, k), v


def build(c: Gemma3TextConfig) -> Module:
    layers: list[Module] = [
        FourNormLayer(c, LateNormedAttention(c, bias=c.attention_bias), GatedMLP(c, c.ffn))
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, TextDecoder(c, layers))
