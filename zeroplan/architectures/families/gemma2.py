"""Gemma 2: four norms a layer, a window in every other layer, capped attention and output logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.config import Config
from zeroplan.architectures.families.gemma import ScaledEmbedding
from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import Module
from zeroplan.architectures.norms import SeparateUnitOffsetNorm
from zeroplan.architectures.rope import RotaryConfig
from zeroplan.autograd.elementwise import add
from zeroplan.autograd.tensor import Tensor


@dataclass(kw_only=True)
class Gemma2Config(RotaryConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"hidden_act": ("hidden_activation",)}
    divides_heads: ClassVar[bool] = True
    has_sdpa: ClassVar[bool] = False

    vocab_size: int = 256000
    hidden_size: int = 2304
    intermediate_size: int = 9216
    num_hidden_layers: int = 26
    num_attention_heads: int = 8
    num_key_value_heads: int = 4
    head_dim: int = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    attention_dropout: float | None = 0.0
    query_pre_attn_scalar: int = 256
    sliding_window: int | None = 4096
    layer_types: list[str] | None = None
    final_logit_softcapping: float | None = 30.0
    attn_logit_softcapping: float | None = 50.0
    use_bidirectional_attention: bool | None = None
    pad_token_id: int | None = 0

    def derive(self) -> None:
        super().derive()
        if self.layer_types is None:
            self.layer_types = self.each_layer(lambda index: "full_attention" if index % 2 else "sliding_attention")

    def windows(self) -> dict[str, int | None]:
        return {"full_attention": None, "sliding_attention": self.sliding_window}

    def kinds(self) -> list[str]:
        return list(self.layer_types or ())


class FourNormLayer(Layer):
    """A layer that norms the input and the output of both its halves."""

    forward_order: tuple[str, ...] = (
        "input_layernorm", "self_attn", "post_attention_layernorm",
        "pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm",
    )  # fmt: skip

    def __init__(self, c: Config, self_attn: Module, mlp: Module) -> None:
        super().__init__(c, self_attn, mlp, norm=SeparateUnitOffsetNorm)
        self.pre_feedforward_layernorm = SeparateUnitOffsetNorm(c.hidden_size)
        self.post_feedforward_layernorm = SeparateUnitOffsetNorm(c.hidden_size)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> Tensor:
        residual = x
        x = self.input_layernorm(run, x)
        x, _weights = self.self_attn(run, x, shared)
        x = self.post_attention_layernorm(run, x)
        x = add(residual, x)
        residual = x
        x = self.pre_feedforward_layernorm(run, x)
        x = self.mlp(run, x)
        x = self.post_feedforward_layernorm(run, x)
        return add(residual, x)


def build(c: Gemma2Config) -> Module:
    layers: list[Module] = [
        FourNormLayer(
            c,
            Attention(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias),
            GatedMLP(c, c.ffn),
        )
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers, norm=SeparateUnitOffsetNorm, embedding=ScaledEmbedding))
