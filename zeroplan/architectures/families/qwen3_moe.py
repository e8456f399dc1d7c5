"""Qwen 3 MoE: Qwen 3's attention (head_dim only when given), routed experts without a shared one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.llama import CausalLM, GatedMLP, Layer
from zeroplan.architectures.families.qwen3 import NormedAttention
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.architectures.moe import Experts, MoEConfig, Router, SparseDecoder, sparse_layer
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import reshape, view


@dataclass(kw_only=True)
class Qwen3MoeConfig(MoEConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"num_experts": ("num_experts", "num_local_experts")}
    not_null: ClassVar[frozenset[str]] = frozenset({"head_dim"})
    may_be_zero: ClassVar[frozenset[str]] = frozenset({"num_experts"})

    vocab_size: int = 151936
    hidden_size: int = 2048
    intermediate_size: int = 6144
    num_hidden_layers: int = 24
    num_attention_heads: int = 32
    num_key_value_heads: int = 4
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    use_sliding_window: bool = False
    sliding_window: int | None = 4096
    num_experts: int = 128
    num_experts_per_tok: int = 8
    norm_topk_prob: bool = False
    moe_intermediate_size: int = 768
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    pad_token_id: int | None = None

    def derive(self) -> None:
        super().derive()
        if not self.use_sliding_window:
            self.sliding_window = None
        if self.mlp_only_layers is None:
            self.mlp_only_layers = []

    def windows(self) -> dict[str, int | None]:
        return {"": self.sliding_window}


class SparseBlock(Module):
    """The experts and their router, registered in this order."""

    transformers_class = "SparseMoeBlock"
    forward_order: tuple[str, ...] = ("gate", "experts")

    def __init__(self, c: Qwen3MoeConfig) -> None:
        super().__init__()
        self.experts = Experts(c, c.moe_intermediate_size)
        router = Router(c.num_experts, c.hidden_size, balanced=c.output_router_logits)
        self.gate = router.routes(c, normalizes=c.norm_topk_prob, narrows=True)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        rows = view(x, (-1, x.shape[-1]))
        _logits, scores, chosen = self.gate(run, rows)
        out = self.experts(run, rows, chosen, scores)
        return reshape(out, x.shape)


def mlp(c: Qwen3MoeConfig, index: int) -> Module:
    sparse = sparse_layer(index, c.num_experts, c.decoder_sparse_step, c.mlp_only_layers)
    return SparseBlock(c) if sparse else GatedMLP(c, c.ffn)


def build(c: Qwen3MoeConfig) -> Module:
    layers: list[Module] = [
        Layer(c, NormedAttention(c, bias=c.attention_bias), mlp(c, index)) for index in range(c.num_hidden_layers)
    ]
    return CausalLM(c, SparseDecoder(c, layers))
