"""DeepSeek V3 and Kimi K2: latent attention, shared and routed experts behind a biased sigmoid router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.llama import CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.module import Buffer, Linear, Module, RMSNorm
from zeroplan.architectures.moe import Experts, MoEConfig, Router


@dataclass(kw_only=True)
class LatentConfig(MoEConfig):
    """Latent attention (MLA): keys and values come from one narrow vector, a part of each key is rotary.

    num_key_value_heads changes no shape. `head_dim`, for transformers, is the rotary part of a head.
    """

    num_key_value_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int = 512
    q_lora_rank: int | None = 1536
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    attention_bias: bool = False
    attention_dropout: float | None = 0.0
    mlp_bias: bool = False
    n_shared_experts: int = 1
    moe_intermediate_size: int
    first_k_dense_replace: int = 0
    routed_scaling_factor: float = 1.0
    n_group: int | None = None
    topk_group: int | None = None
    norm_topk_prob: bool | None = False

    def check_groups(self, place: str) -> None:
        """Any number of key-value heads will do: they are not used."""

    @property
    def qk_width(self) -> int:
        """A head's queries and keys: the plain part and the rotary part."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


@dataclass(kw_only=True)
class DeepseekV3Config(LatentConfig):
    """config.json's head_dim stays and changes the rotary frequencies; V2 drops it. MTP is not built."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {
        "num_experts": ("n_routed_experts", "num_local_experts"),
        "mlp_bias": (),
    }
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})

    vocab_size: int = 129280
    hidden_size: int = 7168
    intermediate_size: int = 18432
    moe_intermediate_size: int = 2048
    num_hidden_layers: int = 61
    num_attention_heads: int = 128
    num_key_value_heads: int | None = 128
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    tie_word_embeddings: bool = False
    num_experts: int = 256
    num_experts_per_tok: int | None = 8
    first_k_dense_replace: int = 3
    routed_scaling_factor: float = 2.5
    n_group: int | None = 8
    topk_group: int | None = 4
    norm_topk_prob: bool | None = True
    rope_interleave: bool | None = True
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        if self.head_dim is None:
            self.head_dim = self.qk_rope_head_dim


class LatentAttention(Module):
    """Queries by way of q_lora_rank (straight where null), keys and values by way of kv_lora_rank.

    Its input comes under a name, not by position.
    """

    transformers_class = "Attention"
    eager_returns = 1
    takes_gradient = False

    def __init__(self, c: LatentConfig) -> None:
        super().__init__()
        heads = c.num_attention_heads
        if c.q_lora_rank is None:
            self.q_proj = Linear(c.hidden_size, heads * c.qk_width, bias=False)
        else:
            self.q_a_proj = Linear(c.hidden_size, c.q_lora_rank, bias=c.attention_bias)
            self.q_a_layernorm = RMSNorm(c.q_lora_rank)
            self.q_b_proj = Linear(c.q_lora_rank, heads * c.qk_width, bias=False)
        latent = c.kv_lora_rank + c.qk_rope_head_dim
        self.kv_a_proj_with_mqa = Linear(c.hidden_size, latent, bias=c.attention_bias)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank)
        self.kv_b_proj = Linear(c.kv_lora_rank, heads * (c.qk_nope_head_dim + c.v_head_dim), bias=False)
        self.o_proj = Linear(heads * c.v_head_dim, c.hidden_size, bias=c.attention_bias)


class PlainRouter(Router):
    transformers_class = "TopkRouter"


class BalancedRouter(PlainRouter):
    """Its correction bias balances the load; it is updated outside of the gradient, hence a buffer."""

    def __init__(self, experts: int, hidden: int) -> None:
        super().__init__(experts, hidden)
        self.e_score_correction_bias = Buffer((experts,), "float32")


class SparseBlock(Module):
    """Routed experts, their router, and the shared experts as one MLP."""

    transformers_class = "MoE"
    forward_order = ("gate", "experts", "shared_experts")
    router: ClassVar[type[Router]] = BalancedRouter

    def __init__(self, c: LatentConfig) -> None:
        super().__init__()
        self.experts = Experts(c, c.moe_intermediate_size)
        self.gate = self.router(c.num_experts, c.hidden_size)
        shared = c.moe_intermediate_size * c.n_shared_experts
        self.shared_experts = GatedMLP(c, shared, bias=c.mlp_bias)


def latent_layer(c: LatentConfig, index: int, block: type[SparseBlock]) -> Module:
    """The first layers, first_k_dense_replace of them, have a dense MLP."""
    dense = index < c.first_k_dense_replace
    mlp = GatedMLP(c, c.ffn, bias=c.mlp_bias) if dense else block(c)
    return Layer(c, LatentAttention(c), mlp)


def build(c: DeepseekV3Config) -> Module:
    layers = [latent_layer(c, index, SparseBlock) for index in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers))
