"""DeepSeek V2: V3's layers with a plain softmax router; biases in the MLPs where asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zeroplan.architectures.families.deepseek_v3 import (
    LatentAttention,
    LatentConfig,
    PlainRouter,
    SparseBlock,
    latent_layer,
)
from zeroplan.architectures.families.llama import CausalLM, Decoder
from zeroplan.architectures.forward_run import FLOAT, ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.architectures.rope import RotaryEmbedding
from zeroplan.autograd.elementwise import mul, mul_scalar, to
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import unsqueeze, view_as_complex, view_as_real


@dataclass(kw_only=True)
class DeepseekV2Config(LatentConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"num_experts": ("n_routed_experts", "num_experts")}
    divides_heads: ClassVar[bool] = True

    vocab_size: int = 102400
    hidden_size: int = 4096
    intermediate_size: int = 11008
    moe_intermediate_size: int = 1407
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False
    num_experts: int = 64
    num_experts_per_tok: int | None = None
    n_shared_experts: int = 2
    topk_method: str | None = "greedy"
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        self.head_dim = self.qk_rope_head_dim


COMPLEX = 8
"""Bytes of a complex number."""


class PlainSparseBlock(SparseBlock):
    transformers_class = "Moe"
    router = PlainRouter


class ComplexRotary(RotaryEmbedding):
    """Turns as complex numbers of unit length, 8 bytes each."""

    def forward(self, run: ForwardRun, _x: Tensor, positions: Tensor, kind: str = "") -> Tensor:
        with run.no_grad():
            shape = (*positions.shape, self.widths[kind] // 2)
            angles = empty(run, shape, FLOAT)  # noqa: F841 (alive while forward runs)
            return mul_scalar(empty(run, shape, COMPLEX))


class ComplexAttention(LatentAttention):
    def rotated(self, q: Tensor, k: Tensor, rope: Any) -> tuple[Tensor, Tensor]:
        q_pairs, k_pairs = view_as_complex(to(q, FLOAT)), view_as_complex(to(k, FLOAT))
        turns = unsqueeze(rope, 1)
        made_q = to(view_as_real(mul(q_pairs, turns)), q.width)
        return made_q, to(view_as_real(mul(k_pairs, turns)), k.width)


def build(c: DeepseekV2Config) -> Module:
    layers = [latent_layer(c, index, PlainSparseBlock, ComplexAttention) for index in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers, rotary=ComplexRotary))
