"""Qwen 1.5 and 2 MoE: routed experts and one gated shared expert; some layers may stay dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.llama import Attention, CausalLM, GatedMLP, Layer
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Linear, Module
from zeroplan.architectures.moe import Experts, MoEConfig, Router, SparseDecoder, sparse_layer
from zeroplan.autograd.elementwise import add, mul, unary_saving_result
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import reshape, view


@dataclass(kw_only=True)
class Qwen2MoeConfig(MoEConfig):
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"num_experts"})

    vocab_size: int = 151936
    hidden_size: int = 2048
    intermediate_size: int = 5632
    num_hidden_layers: int = 24
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    tie_word_embeddings: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    max_window_layers: int = 28
    layer_types: list[str] | None = None
    attention_dropout: float = 0.0
    qkv_bias: bool = True
    num_experts: int = 60
    num_experts_per_tok: int = 4
    norm_topk_prob: bool = False
    moe_intermediate_size: int = 1408
    shared_expert_intermediate_size: int = 5632
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        if not self.use_sliding_window:
            self.sliding_window = 0
        if self.mlp_only_layers is None:
            self.mlp_only_layers = []
        if self.layer_types is None:
            last = self.max_window_layers if self.use_sliding_window else 0
            self.layer_types = self.each_layer(
                lambda index: "sliding_attention" if index % 2 == 0 and index < last else "full_attention"
            )

    def windows(self) -> dict[str, int | None]:
        """Both masks are made, whatever the layers are."""
        return {"full_attention": None, "sliding_attention": self.sliding_window}

    def kinds(self) -> list[str]:
        return list(self.layer_types or ())


class SparseBlock(Module):
    """Router, routed experts, and a shared expert behind a gate of one logit, multiplied last."""

    transformers_class = "SparseMoeBlock"
    forward_order: tuple[str, ...] = ("shared_expert", "gate", "experts", "shared_expert_gate")
    saves_last = True

    def __init__(self, c: Qwen2MoeConfig) -> None:
        super().__init__()
        router = Router(c.num_experts, c.hidden_size, balanced=c.output_router_logits)
        self.gate = router.routes(c, normalizes=c.norm_topk_prob, narrows=True)
        self.experts = Experts(c, c.moe_intermediate_size)
        self.shared_expert = GatedMLP(c, c.shared_expert_intermediate_size)
        self.shared_expert_gate = Linear(c.hidden_size, 1, bias=False)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        rows = view(x, (-1, x.shape[-1]))
        shared = self.shared_expert(run, rows)
        _logits, scores, chosen = self.gate(run, rows)
        out = self.experts(run, rows, chosen, scores)
        shared = mul(unary_saving_result("SigmoidBackward", self.shared_expert_gate(run, rows)), shared)
        out = add(out, shared)
        return reshape(out, x.shape)


def mlp(c: Qwen2MoeConfig, index: int) -> Module:
    sparse = sparse_layer(index, c.num_experts, c.decoder_sparse_step, c.mlp_only_layers)
    return SparseBlock(c) if sparse else GatedMLP(c, c.ffn)


def build(c: Qwen2MoeConfig) -> Module:
    layers: list[Module] = [
        Layer(c, Attention(c, qkv_bias=c.qkv_bias, o_bias=False), mlp(c, index)) for index in range(c.num_hidden_layers)
    ]
    return CausalLM(c, SparseDecoder(c, layers))
