"""Qwen 3: head_dim of its own (128), and norms of that width on each head's queries and keys."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.config import Config
from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, GatedMLP, Layer
from zeroplan.architectures.families.qwen2 import WindowedConfig
from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.architectures.norms import RMSNorm
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import transpose, view


@dataclass(kw_only=True)
class Qwen3Config(WindowedConfig):
    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 22016
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    head_dim: int = 128
    hidden_act: str = "silu"
    max_position_embeddings: int = 32768
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    pad_token_id: int | None = None


class NormedAttention(Attention):
    """Attention whose queries and keys are normed head by head."""

    forward_order: tuple[str, ...] = ("q_proj", "q_norm", "k_proj", "k_norm", "v_proj", "o_proj")
    norm: type[RMSNorm] = RMSNorm

    def __init__(self, c: Config, *, bias: bool) -> None:
        super().__init__(c, qkv_bias=bias, o_bias=bias)
        self.q_norm = self.norm(c.head_width)
        self.k_norm = self.norm(c.head_width)

    def projected(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = (*x.shape[:-1], -1, self.head_width)
        q = transpose(self.q_norm(run, view(self.q_proj(run, x), shape)), 1, 2)
        k = transpose(self.k_norm(run, view(self.k_proj(run, x), shape)), 1, 2)
        return q, k, self.heads(self.v_proj(run, x))


def build(c: Qwen3Config) -> Module:
    layers: list[Module] = [
        Layer(c, NormedAttention(c, bias=c.attention_bias), GatedMLP(c, c.ffn)) for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers))
