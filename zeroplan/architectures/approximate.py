"""A model of a family that is not described, from the sizes that its config.json names: a decoder like Llama's.

Rotary attention with grouped or latent keys, a gated MLP or a plain one, RMSNorm or LayerNorm as the file's keys say,
experts in the place of MLPs where it counts some. What a family has beside these (norms on queries, biases, caps) is
left out. Planned so, described families' models need as much memory as planned themselves, within `DENSE` or `SPARSE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from zeroplan.architectures.config import ACTIVATIONS
from zeroplan.architectures.families.deepseek_v3 import LatentAttention
from zeroplan.architectures.families.gemma2 import FourNormLayer
from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.model import model_from
from zeroplan.architectures.module import Activation, Dropout, Linear, Module, Unary
from zeroplan.architectures.moe import Experts, MoEConfig, Router
from zeroplan.architectures.norms import LayerNorm, RMSNorm
from zeroplan.architectures.sizes import ACTIVATION, Sizes
from zeroplan.autograd.elementwise import add
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import reshape, view
from zeroplan.errors import SpecError, shown
from zeroplan.specs.model import Model

LATENT = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
DENSE, SPARSE = 0.10, 0.15
"""Shares by which memory may be off, without experts and with them."""
OTHER_HEADS = ("Classification", "QuestionAnswering", "MaskedLM", "ConditionalGeneration", "PreTraining")
TIES = 0.03
"""Share of a model's parameters from which on a table of words more or less is too much to be guessed."""


@dataclass(kw_only=True)
class ApproximateConfig(MoEConfig):
    """Sizes of a decoder; zero for a part that it has not."""

    may_be_zero: ClassVar[frozenset[str]] = frozenset({
        "num_experts", "moe_intermediate_size", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    })  # fmt: skip

    num_experts: int = 0
    moe_intermediate_size: int = 0
    shared_width: int = 0
    first_k_dense_replace: int = 0
    every: int = 1
    """Layers of which one has experts."""
    gated: bool = True
    rms_norm: bool = True
    norms_heads: bool = False
    """Queries and keys have norms of their own: no file says, and most with an RMSNorm have."""
    four_norms: bool = False
    """Each half of a layer has a norm before it and one behind it."""
    attn_logit_softcapping: float | None = None
    final_logit_softcapping: float | None = None
    biases: bool = False
    biased_products: bool = False
    """Queries, keys and values have biases though the others have none."""
    kv_lora_rank: int = 0
    q_lora_rank: int | None = None
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    attention_bias: bool = False

    @property
    def qk_width(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def rotary_head(self) -> int:
        return self.qk_rope_head_dim or self.head_width


class PlainMLP(Unary):
    """down(act(up(x)))."""

    transformers_class = "MLP"
    forward_order = ("c_fc", "act", "c_proj", "dropout")

    def __init__(self, c: ApproximateConfig) -> None:
        super().__init__()
        self.c_fc = Linear(c.hidden_size, c.ffn, bias=c.biases)
        self.c_proj = Linear(c.ffn, c.hidden_size, bias=c.biases)
        self.act = Activation(c.hidden_act)
        self.dropout = Dropout(c.residual_dropout)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return self.dropout(run, self.c_proj(run, self.act(run, self.c_fc(run, x))))


class ApproximateAttention(Attention):
    """With RMSNorms on queries and shared keys, which half of the families have, and a dropout at its end.

    Without them a model that has them would need up to 14 % more than planned, with both up to 11 % less.
    """

    forward_order = ("q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj", "resid_dropout")

    def __init__(self, c: ApproximateConfig) -> None:
        super().__init__(c, qkv_bias=c.biases or c.biased_products, o_bias=c.biases)
        if c.norms_heads:
            self.q_norm = RMSNorm(c.head_width)
            if c.kv_heads < c.num_attention_heads:
                self.k_norm = RMSNorm(c.head_width)
        self.resid_dropout = Dropout(c.residual_dropout)

    def projected(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().projected(run, x)
        q = self.q_norm(run, q) if "q_norm" in self.children else q
        return q, self.k_norm(run, k) if "k_norm" in self.children else k, v

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        output, weights = super().forward(run, x, shared)
        return self.resid_dropout(run, output), weights


class ApproximateSparseBlock(Module):
    """A router, the experts that it chooses, and those that every token is routed to, as one MLP."""

    transformers_class = "SparseMoeBlock"

    def __init__(self, c: ApproximateConfig) -> None:
        super().__init__()
        self.gate = Router(c.num_experts, c.hidden_size).routes(c, normalizes=True, narrows=False)
        self.experts = Experts(c, c.moe_intermediate_size)
        if c.shared_width:
            self.shared_experts = GatedMLP(c, c.shared_width)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        rows = view(x, (-1, x.shape[-1]))
        _logits, scores, chosen = self.gate(run, rows)
        routed = reshape(self.experts(run, rows, chosen, scores), x.shape)
        return add(routed, self.shared_experts(run, x)) if "shared_experts" in self.children else routed


def build(c: ApproximateConfig) -> Module:
    norm = RMSNorm if c.rms_norm else LayerNorm

    def mlp(index: int) -> Module:
        if c.num_experts and index >= c.first_k_dense_replace and (index + 1) % c.every == 0:
            return ApproximateSparseBlock(c)
        return GatedMLP(c, c.ffn, bias=c.biases) if c.gated else PlainMLP(c)

    attention = LatentAttention if c.kv_lora_rank else ApproximateAttention
    def layer(index: int) -> Module:
        if c.four_norms:
            return FourNormLayer(c, attention(c), mlp(index))  # type: ignore[arg-type]
        return Layer(c, attention(c), mlp(index), norm=norm)  # type: ignore[arg-type]

    layers = [layer(index) for index in range(c.num_hidden_layers)]
    return CausalLM(c, Decoder(c, layers, norm=norm))


def read(content: Mapping[str, Any], place: str) -> ApproximateConfig:
    """The sizes that config.json names. Raises `SpecError` for one that is missing, or a part that none such has."""
    sizes = Sizes(content, place)
    sizes.check_decoder()
    hidden, heads = sizes.needed("hidden_size"), sizes.needed("num_attention_heads")
    gated, rms_norm = sizes.is_gated(), sizes.has_rms_norm()
    experts = sizes.count("num_experts")
    latent = sizes.count("kv_lora_rank")
    stated = (content.get(name) for name in ACTIVATION)
    act = next((name for name in stated if isinstance(name, str) and name in ACTIVATIONS), "silu" if gated else "gelu")
    dropout = sizes.probability("resid_pdrop", "hidden_dropout", "residual_dropout", "dropout")
    widths: dict[str, Any] = {name: sizes.needed(name) for name in LATENT if latent}
    c = ApproximateConfig(
        vocab_size=sizes.needed("vocab_size"), hidden_size=hidden, num_hidden_layers=sizes.needed("num_hidden_layers"),
        num_attention_heads=heads, num_key_value_heads=heads if latent else sizes.key_value_heads(heads),
        head_dim=None if latent else sizes.count("head_dim") or hidden // heads,
        intermediate_size=sizes.ffn(hidden, gated, experts), hidden_act=act,
        max_position_embeddings=sizes.count("max_position_embeddings") or 2048,
        tie_word_embeddings=sizes.flag("tie_word_embeddings"),
        attention_dropout=sizes.probability("attn_pdrop", "attention_dropout"), residual_dropout=dropout,
        gated=gated, rms_norm=rms_norm, norms_heads="rms_norm_eps" in content,
        four_norms="query_pre_attn_scalar" in content,
        attn_logit_softcapping=sizes.number("attn_logit_softcapping"),
        final_logit_softcapping=sizes.number("final_logit_softcapping"),
        biases=sizes.has_biases(rms_norm), biased_products=sizes.biases_products(),
        num_experts=experts, num_experts_per_tok=sizes.needed("num_experts_per_tok") if experts else None,
        moe_intermediate_size=sizes.expert_width() if experts else 0,
        shared_width=sizes.shared_width() if experts else 0,
        first_k_dense_replace=sizes.count("first_k_dense_replace"), every=sizes.count("decoder_sparse_step") or 1,
        kv_lora_rank=latent, q_lora_rank=sizes.count("q_lora_rank") or None,
        **widths,
    )  # fmt: skip
    c.validate(place)
    return c


def approximate(content: Mapping[str, Any], place: str, name: str) -> Model:
    """The model, with how far it may be off. Raises `SpecError`."""
    named = str((content.get("architectures") or [""])[0])
    if named.endswith(OTHER_HEADS):
        raise SpecError(
            place, f"{shown(named)}, of a family that is not described", "a language model, planned by its sizes",
            "architectures: null to plan its language model",
        )  # fmt: skip
    c = read(content, place)
    share = SPARSE if c.num_experts else DENSE
    kind = f"{c.num_experts} experts" if c.num_experts else "no experts"
    source = (
        f"{place}: {content['model_type']} is not described; its sizes in layers like Llama's, {kind}: "
        f"memory within {share:.0%}"
    )
    model = model_from(
        c, build, family=str(content["model_type"]), classes="mixtral" if c.num_experts else "llama", name=name,
        source=source, content=content,
    )  # fmt: skip
    table = c.vocab_size * c.hidden_size
    if "tie_word_embeddings" not in content and table > TIES * model.parameters:
        raise SpecError(
            place, "no tie_word_embeddings", "whether embedding and lm_head share their weights",
            '"tie_word_embeddings": true or false',
        )  # fmt: skip
    return model._replace(approximate=share, has_sdpa=c.attn_logit_softcapping is None)
