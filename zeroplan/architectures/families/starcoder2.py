"""StarCoder 2: LayerNorm, a plain MLP, and one switch for all biases but the head's."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.families.llama import Attention, CausalLM, Decoder, Layer
from zeroplan.architectures.forward_run import ForwardRun, LayerInputs
from zeroplan.architectures.module import Activation, Linear, Module
from zeroplan.architectures.norms import LayerNorm
from zeroplan.architectures.rope import RotaryConfig
from zeroplan.autograd.elementwise import apply_dropout
from zeroplan.autograd.tensor import Tensor


@dataclass(kw_only=True)
class Starcoder2Config(RotaryConfig):
    vocab_size: int = 49152
    hidden_size: int = 3072
    intermediate_size: int = 12288
    num_hidden_layers: int = 30
    num_attention_heads: int = 24
    num_key_value_heads: int = 2
    head_dim: int | None = None
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 4096
    tie_word_embeddings: bool = True
    use_bias: bool = True
    sliding_window: int | None = None
    attention_dropout: float = 0.0
    residual_dropout: float = 0.0
    embedding_dropout: float = 0.0
    pad_token_id: int | None = None

    def windows(self) -> dict[str, int | None]:
        return {"": self.sliding_window}


class MLP(Module):
    """A dropout that is a function, not a module, ends it."""

    transformers_class = "MLP"
    forward_order: tuple[str, ...] = ("c_fc", "act", "c_proj")

    def __init__(self, c: Starcoder2Config) -> None:
        super().__init__()
        self.c_fc = Linear(c.hidden_size, c.ffn, bias=c.use_bias)
        self.c_proj = Linear(c.ffn, c.hidden_size, bias=c.use_bias)
        self.act = Activation(c.hidden_act)
        self.dropout = c.residual_dropout
        self.saves_last = c.residual_dropout > 0

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        x = self.c_fc(run, x)
        x = self.act(run, x)
        x = self.c_proj(run, x)
        return apply_dropout(x, self.dropout, on_cpu=run.on_cpu)


class DroppedAttention(Attention):
    """A dropout that is a function, not a module, ends it."""

    def __init__(self, c: Starcoder2Config) -> None:
        super().__init__(c, qkv_bias=c.use_bias, o_bias=c.use_bias)
        self.residual_dropout = c.residual_dropout

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        out, weights = super().forward(run, x, shared)
        return apply_dropout(out, self.residual_dropout, on_cpu=run.on_cpu), weights


def build(c: Starcoder2Config) -> Module:
    layers: list[Module] = [
        Layer(
            c,
            DroppedAttention(c),
            MLP(c),
            norm=LayerNorm,
        )
        for _ in range(c.num_hidden_layers)
    ]
    return CausalLM(c, Decoder(c, layers, norm=LayerNorm))
