"""Mixtral: Mistral with experts in every layer; `intermediate_size` is the width of one expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from zeroplan.architectures.families.llama import Attention, CausalLM, Layer
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.architectures.moe import Experts, MoEConfig, Router, SparseDecoder
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import reshape, view


@dataclass(kw_only=True)
class MixtralConfig(MoEConfig):
    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"num_experts": ("num_local_experts", "num_experts")}
    head_dim_declared: ClassVar[bool] = True

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 131072
    tie_word_embeddings: bool = False
    sliding_window: int | None = None
    attention_dropout: float = 0.0
    num_experts: int = 8
    num_experts_per_tok: int = 2
    router_jitter_noise: float = 0.0
    rope_theta: float = 1000000.0
    pad_token_id: int | None = None

    def windows(self) -> dict[str, int | None]:
        return {"": self.sliding_window}


class SparseBlock(Module):
    """The router, then the experts."""

    transformers_class = "SparseMoeBlock"

    def __init__(self, c: MixtralConfig) -> None:
        super().__init__()
        router = Router(c.num_experts, c.hidden_size, balanced=c.output_router_logits)
        self.gate = router.routes(c, normalizes=True, narrows=False)
        self.experts = Experts(c, c.ffn)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        shape = x.shape
        x = view(x, (-1, shape[-1]))
        _logits, scores, chosen = self.gate(run, x)
        x = self.experts(run, x, chosen, scores)
        return reshape(x, shape)


def build(c: MixtralConfig) -> Module:
    layers: list[Module] = [
        Layer(c, Attention(c, qkv_bias=False, o_bias=False), SparseBlock(c)) for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, SparseDecoder(c, layers))
