"""DeepSeek V3 and Kimi K2: latent attention, shared and routed experts behind a biased sigmoid router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zeroplan.architectures.attention import Rope, apply_rotary_pos_emb, attention_forward
from zeroplan.architectures.families.llama import CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.forward_run import FLOAT, ForwardRun, LayerInputs
from zeroplan.architectures.module import Buffer, Linear, Module
from zeroplan.architectures.moe import Experts, MoEConfig, Router
from zeroplan.architectures.norms import RMSNorm
from zeroplan.autograd.elementwise import (
    add,
    add_scalar,
    copy_into_slice,
    div_,
    mul,
    mul_scalar,
    sub,
    to,
    unary_saving_result,
)
from zeroplan.autograd.indexing import gather, masked_fill, max_of_row, topk
from zeroplan.autograd.products import linear
from zeroplan.autograd.reductions import cat, softmax, sum_over
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import (
    contiguous,
    every_second,
    expand,
    narrow,
    reshape,
    split,
    transpose,
    unsqueeze,
    view,
)


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
    def turned(self) -> int:
        return self.qk_rope_head_dim

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
        self.plain, self.turned, self.value = c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim
        self.latent, self.dropout = c.kv_lora_rank, c.attention_dropout or 0.0
        self.interleaves = bool(getattr(c, "rope_interleave", False))

    def queries(self, run: ForwardRun, x: Tensor) -> Tensor:
        if "q_proj" in self.children:
            return self.q_proj(run, x)
        return self.q_b_proj(run, self.q_a_layernorm(run, self.q_a_proj(run, x)))

    def rotated(self, q: Tensor, k: Tensor, rope: Any) -> tuple[Tensor, Tensor]:
        return turned_interleaved(q, k, rope) if self.interleaves else apply_rotary_pos_emb(q, k, rope)

    def expanded(self, run: ForwardRun, latent: Tensor, rotary: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of every head, from the latent vector and the rotary part that heads share."""
        batch, _one, seq, _rank = latent.shape
        latent = view(self.kv_b_proj(run, latent), (batch, seq, -1, self.plain + self.value))
        latent = transpose(latent, 1, 2)
        plain, values = split(latent, (self.plain, self.value), -1)
        rotary = expand(rotary, (batch, plain.shape[1], seq, self.turned))
        keys = empty(run, (*latent.shape[:-1], self.plain + self.turned), latent.width)
        keys = copy_into_slice(keys, plain)
        return copy_into_slice(keys, rotary), values

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        batch, seq = x.shape[:-1]
        queries = self.queries(run, x)
        queries = transpose(view(queries, (batch, seq, -1, self.plain + self.turned)), 1, 2)
        q_passed, q_turned = split(queries, (self.plain, self.turned), -1)
        compressed = self.kv_a_proj_with_mqa(run, x)
        latent, k_turned = split(compressed, (self.latent, self.turned), -1)
        latent = self.kv_a_layernorm(run, latent)
        latent = view(latent, (batch, 1, seq, self.latent))
        k_turned = view(k_turned, (batch, 1, seq, self.turned))
        q_turned, k_turned = self.rotated(q_turned, k_turned, shared.rope)
        q = cat((q_passed, q_turned), -1)
        k, v = self.expanded(run, latent, k_turned)
        out, weights = attention_forward(run, q, k, v, shared.mask, shared.positions, dropout=self.dropout)
        out = contiguous(reshape(out, (batch, seq, -1)))
        return self.o_proj(run, out), weights


def turned_interleaved(q: Tensor, k: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """Elements turned in pairs of neighbours; half of the cosines is used."""
    half = rope[0].shape[-1] // 2
    cosines, sines = unsqueeze(narrow(rope[0], -1, half), 1), unsqueeze(narrow(rope[1], -1, half), 1)
    q_even, q_odd = every_second(q, 0), every_second(q, 1)
    k_even, k_odd = every_second(k, 0), every_second(k, 1)
    made_q = cat(_pairs(q_even, q_odd, cosines, sines), -1)
    return made_q, cat(_pairs(k_even, k_odd, cosines, sines), -1)


def _pairs(even: Tensor, odd: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    first = sub(mul(even, cosines), mul(odd, sines))
    return first, add(mul(odd, cosines), mul(even, sines))


class PlainRouter(Router):
    """Logits and softmax in fp32, from copies of input and weight."""

    transformers_class = "TopkRouter"

    def __init__(self, c: LatentConfig) -> None:
        super().__init__(c.num_experts, c.hidden_size)
        self.routes(c, normalizes=bool(c.norm_topk_prob), narrows=False)
        self.groups, self.groups_per_token = c.n_group or 1, c.topk_group or 1
        self.by_group = getattr(c, "topk_method", "") == "group_limited_greedy"

    def forward(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = view(x, (-1, x.shape[-1]))
        logits = linear(to(x, FLOAT), to(run.parameter(self.weight), FLOAT))
        scores = softmax(logits, FLOAT)
        if self.by_group:
            group_scores = max_of_row(view(scores, (x.shape[0], self.groups, -1)))
            group_chosen = topk(group_scores, 1)[1]  # noqa: F841 (alive while forward runs)
            group_mask = empty(run, group_scores.shape, FLOAT)  # noqa: F841
            mask = empty(run, scores.shape, FLOAT)  # noqa: F841
            scores = masked_fill(scores)
        weights, chosen = topk(scores, self.experts_per_token)
        return logits, mul_scalar(weights), chosen


class BalancedRouter(PlainRouter):
    """Its correction bias balances the load; it is updated outside of the gradient, hence a buffer."""

    def __init__(self, c: LatentConfig) -> None:
        super().__init__(c)
        self.e_score_correction_bias = Buffer((c.num_experts,), "float32")

    def forward(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = view(x, (-1, x.shape[-1]))
        logits = linear(to(x, FLOAT), to(run.parameter(self.weight), FLOAT))
        scores = unary_saving_result("SigmoidBackward", logits)
        biased = add_scalar(scores)
        group_scores = sum_over(topk(view(biased, (x.shape[0], self.groups, -1)), 2)[0], -1)
        group_chosen = topk(group_scores, self.groups_per_token)[1]  # noqa: F841 (alive while forward runs)
        group_mask = empty(run, group_scores.shape, FLOAT)  # noqa: F841
        mask = empty(run, scores.shape, FLOAT)  # noqa: F841
        biased = masked_fill(biased)
        chosen = topk(biased, self.experts_per_token)[1]
        weights = gather(scores, chosen)
        if self.normalizes:
            divisor = add_scalar(sum_over(weights, -1, stays=True))
            weights = div_(weights, divisor)
        return logits, mul_scalar(weights), chosen


class SparseBlock(Module):
    """Routed experts, their router, and the shared experts as one MLP."""

    transformers_class = "MoE"
    forward_order: tuple[str, ...] = ("gate", "experts", "shared_experts")
    router: ClassVar[type[PlainRouter]] = BalancedRouter

    def __init__(self, c: LatentConfig) -> None:
        super().__init__()
        self.experts = Experts(c, c.moe_intermediate_size)
        self.gate = self.router(c)
        shared = c.moe_intermediate_size * c.n_shared_experts
        self.shared_experts = GatedMLP(c, shared, bias=c.mlp_bias)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        residual = x
        _logits, scores, chosen = self.gate(run, x)
        x = view(x, (-1, x.shape[-1]))
        x = view(self.experts(run, x, chosen, scores), residual.shape)
        return add(x, self.shared_experts(run, residual))


def latent_layer(
    c: LatentConfig, index: int, block: type[SparseBlock], attention: type[LatentAttention] = LatentAttention
) -> Module:
    """The first layers, first_k_dense_replace of them, have a dense MLP."""
    dense = index < c.first_k_dense_replace
    mlp = GatedMLP(c, c.ffn, bias=c.mlp_bias) if dense else block(c)
    return Layer(c, attention(c), mlp)


def build(c: DeepseekV3Config) -> Module:
    layers = [latent_layer(c, index, SparseBlock) for index in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers))
