"""Gemma: Llama with head_dim 256 whatever the hidden size, a tied head and embeddings scaled by √hidden."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Buffer, Embedding, Module
from zeroplan.architectures.norms import UnitOffsetNorm
from zeroplan.architectures.rope import RotaryConfig
from zeroplan.autograd.elementwise import mul
from zeroplan.autograd.tensor import Tensor, given


@dataclass(kw_only=True)
class GemmaConfig(RotaryConfig):
    vocab_size: int = 256000
    hidden_size: int = 3072
    intermediate_size: int = 24576
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    head_dim: int = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    attention_dropout: float = 0.0
    use_bidirectional_attention: bool | None = None
    pad_token_id: int | None = 0

    def derive(self) -> None:
        super().derive()
        if self.hidden_act == "gelu":
            self.hidden_act = "gelu_pytorch_tanh"


class ScaledEmbedding(Embedding):
    """An embedding whose output is multiplied by a scalar kept as a buffer."""

    transformers_class = "TextScaledWordEmbedding"

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, width)
        self.embed_scale = Buffer((), "float32")

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return mul(super().forward(run, ids), given(run, (), run.width))


def build(c: GemmaConfig) -> Module:
    layers: list[Module] = [
        Layer(
            c,
            Attention(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias),
            GatedMLP(c, c.ffn),
            norm=UnitOffsetNorm,
        )
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers, norm=UnitOffsetNorm, embedding=ScaledEmbedding))
