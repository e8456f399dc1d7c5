"""DeepSeek V2: V3's layers with a plain softmax router; biases in the MLPs where asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.deepseek_v3 import LatentConfig, PlainRouter, SparseBlock, latent_layer
from zeroplan.architectures.families.llama import CausalLM, Decoder
from zeroplan.architectures.module import Module


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


class PlainSparseBlock(SparseBlock):
    transformers_class = "Moe"
    router = PlainRouter


def build(c: DeepseekV2Config) -> Module:
    layers = [latent_layer(c, index, PlainSparseBlock) for index in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers))
