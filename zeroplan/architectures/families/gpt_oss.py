"""gpt-oss: experts in every layer, stored [experts, in, out] with biases; a learned sink for each head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zeroplan.architectures.families.llama import Attention, CausalLM, Layer
from zeroplan.architectures.module import Module, Parameter
from zeroplan.architectures.moe import MoEConfig, Router, SparseDecoder


@dataclass(kw_only=True)
class GptOssConfig(MoEConfig):
    """The experts' activation is a clamped swish of its own; hidden_act is not read."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"num_experts": ("num_local_experts", "num_experts")}

    vocab_size: int = 201088
    hidden_size: int = 2880
    intermediate_size: int = 2880
    num_hidden_layers: int = 36
    num_attention_heads: int = 64
    num_key_value_heads: int = 8
    head_dim: int = 64
    max_position_embeddings: int = 131072
    tie_word_embeddings: bool = False
    attention_bias: bool = True
    attention_dropout: float = 0.0
    sliding_window: int | None = 128
    layer_types: list[str] | None = None
    num_experts: int = 128
    num_experts_per_tok: int = 4
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    rope_theta: float = 150000.0
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        if self.layer_types is None:
            self.layer_types = self.each_layer(lambda index: "full_attention" if index % 2 else "sliding_attention")
        if self.rope_parameters is None:
            self.rope_parameters = yarn()


def yarn() -> dict[str, Any]:
    """The rope of a config.json that gives none."""
    return {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    }


class SinkAttention(Attention):
    """Attention with one more logit a head, which takes weight and gives nothing."""

    forward_order = ("q_proj", "k_proj", "v_proj", "sinks", "o_proj")

    def __init__(self, c: GptOssConfig) -> None:
        super().__init__(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias)
        self.sinks = Parameter(c.num_attention_heads)


class BiasedRouter(Router):
    def __init__(self, experts: int, hidden: int, *, balanced: bool = False) -> None:
        super().__init__(experts, hidden, balanced=balanced)
        self.bias = Parameter(experts)


class BiasedExperts(Module):
    """[experts, in, out], unlike the other families', with a bias for each product.

    The biases of the experts chosen are picked before the products.
    """

    transformers_class = "Experts"
    saves_last = True
    forward_order = ("gate_up_proj_bias", "gate_up_proj", "down_proj_bias", "down_proj")

    def __init__(self, c: GptOssConfig, ffn: int) -> None:
        super().__init__()
        experts, hidden = c.num_experts, c.hidden_size
        self.gate_up_proj = Parameter(experts, hidden, 2 * ffn)
        self.gate_up_proj_bias = Parameter(experts, 2 * ffn)
        self.down_proj = Parameter(experts, ffn, hidden)
        self.down_proj_bias = Parameter(experts, hidden)


class SparseBlock(Module):
    """The router, then the experts."""

    transformers_class = "MLP"
    returns = 2

    def __init__(self, c: GptOssConfig) -> None:
        super().__init__()
        self.router = BiasedRouter(c.num_experts, c.hidden_size, balanced=c.output_router_logits)
        self.experts = BiasedExperts(c, c.ffn)


def build(c: GptOssConfig) -> Module:
    layers: list[Module] = [Layer(c, SinkAttention(c), SparseBlock(c)) for _ in range(c.num_hidden_layers)]
    return CausalLM(c, SparseDecoder(c, layers))
