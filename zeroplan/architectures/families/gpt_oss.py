"""gpt-oss: experts in every layer, stored [experts, in, out] with biases; a learned sink for each head."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from zeroplan.architectures.attention import Rope, apply_positions, attention_interface, repeat_kv
from zeroplan.architectures.families.llama import Attention, CausalLM, Layer
from zeroplan.architectures.forward_run import FLOAT, ForwardRun, LayerInputs
from zeroplan.architectures.module import Module, Parameter
from zeroplan.architectures.moe import Experts, MoEConfig, Router, SparseDecoder
from zeroplan.architectures.norms import LateCastNorm
from zeroplan.architectures.rope import RotaryEmbedding
from zeroplan.autograd.elementwise import (
    add,
    add_,
    add_scalar,
    apply_dropout,
    clamp,
    mul,
    mul_scalar,
    sub,
    to,
    unary_saving_result,
)
from zeroplan.autograd.indexing import index_rows, max_of_row, topk
from zeroplan.autograd.products import batched_matmul, grouped_mm, linear
from zeroplan.autograd.reductions import cat, softmax
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import (
    chunk,
    contiguous,
    every_second,
    expand,
    narrow,
    reshape,
    transpose,
    unsqueeze,
)


@dataclass(kw_only=True)
class GptOssConfig(MoEConfig):
    """The experts' activation is a clamped swish of its own; hidden_act is not read."""

    aliases: ClassVar[dict[str, tuple[str, ...]]] = {"num_experts": ("num_local_experts", "num_experts")}
    has_sdpa: ClassVar[bool] = False

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

    @property
    def changes_products(self) -> str:
        return "adds the experts' biases to their products in place"

    @property
    def no_flash(self) -> str:
        return "which transformers runs by a kernel of its hub instead, for its sinks"

    def windows(self) -> dict[str, int | None]:
        return {"full_attention": None, "sliding_attention": self.sliding_window}

    def kinds(self) -> list[str]:
        return list(self.layer_types or ())


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

    forward_order: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "sinks", "o_proj")

    def __init__(self, c: GptOssConfig) -> None:
        super().__init__(c, qkv_bias=c.attention_bias, o_bias=c.attention_bias)
        self.sinks = Parameter(c.num_attention_heads)

    def forward(self, run: ForwardRun, x: Tensor, shared: LayerInputs) -> tuple[Tensor, Tensor | None]:
        assert shared.rope is not None
        q, k, v = self.projected(run, x)
        q, k = apply_positions(run, q, k, shared.rope, turned_in_halves)
        attend = partial(attended_with_sinks, run, run.parameter(self.sinks), self.dropout)
        out, weights = attention_interface(run, attend, q, k, v, shared.mask, shared.positions)
        out = reshape(out, (*x.shape[:-1], -1))
        return self.o_proj(run, out), weights


def turned_in_halves(q: Tensor, k: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """Each half of a head with half as many cosines."""
    cosines, sines = unsqueeze(rope[0], 1), unsqueeze(rope[1], 1)
    out = in_halves(q, cosines, sines)
    return out, in_halves(k, cosines, sines)


def in_halves(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = chunk(x, 2, -1)
    turned_first = sub(mul(first, cosines), mul(second, sines))
    turned_second = add(mul(second, cosines), mul(first, sines))
    return cat((turned_first, turned_second), -1)


def attended_with_sinks(
    run: ForwardRun, sinks: Tensor, dropout: float, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Eager attention whose softmax runs over one column more, in the model's dtype, less the largest of each row."""
    times = q.shape[1] // k.shape[1]
    keys, values = repeat_kv(k, times), repeat_kv(v, times)
    weights = mul_scalar(batched_matmul(q, transpose(keys, 2, 3)))
    if mask is not None:
        weights = add(weights, mask)
    column = expand(reshape(sinks, (1, -1, 1, 1)), (*weights.shape[:-1], 1))
    logits = cat((weights, column), -1)
    logits = sub(logits, max_of_row(logits))
    probabilities = softmax(logits, logits.width)
    scores = narrow(probabilities, -1, weights.shape[-1])
    weights = to(apply_dropout(scores, dropout, on_cpu=run.on_cpu), values.width)
    out = batched_matmul(weights, values)
    return contiguous(transpose(out, 1, 2)), weights


class HalfRotary(RotaryEmbedding):
    """One cosine for both halves of a head."""

    def forward(self, run: ForwardRun, x: Tensor, positions: Tensor, kind: str = "") -> Rope:
        with run.no_grad():
            angles = empty(run, (*positions.shape, self.widths[kind] // 2), FLOAT)
            cosines = mul_scalar(empty(run, angles.shape, FLOAT))
            sines = mul_scalar(empty(run, angles.shape, FLOAT))
            return to(cosines, x.width), to(sines, x.width)


class BiasedRouter(Router):
    def __init__(self, experts: int, hidden: int, *, balanced: bool = False) -> None:
        super().__init__(experts, hidden, balanced=balanced)
        self.bias = Parameter(experts)

    def forward(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = linear(x, run.parameter(self.weight), run.parameter(self.bias))
        best, chosen = topk(logits, self.experts_per_token)
        return logits, softmax(best, best.width), chosen


class BiasedExperts(Experts):
    """[experts, in, out], unlike the other families', with a bias for each product.

    The biases of the experts chosen are picked before the products.
    """

    saves_views = False
    is_transposed = True
    liger_patches = False
    liger_order = None
    forward_order: tuple[str, ...] = ("gate_up_proj_bias", "gate_up_proj", "down_proj_bias", "down_proj")

    def __init__(self, c: GptOssConfig, ffn: int) -> None:
        Module.__init__(self)
        experts, hidden = c.num_experts, c.hidden_size
        self.gate_up_proj = Parameter(experts, hidden, 2 * ffn)
        self.gate_up_proj_bias = Parameter(experts, 2 * ffn)
        self.down_proj = Parameter(experts, ffn, hidden)
        self.down_proj_bias = Parameter(experts, hidden)

    def product(self, x: Tensor, weight: Tensor, offsets: Tensor, bias: Tensor | None) -> Tensor:
        out = grouped_mm(x, weight, offsets)
        assert bias is not None
        return add_(out, bias)

    def gated(self, _run: ForwardRun, x: Tensor) -> Tensor:
        gate, up = every_second(x, 0), every_second(x, 1)
        gate = clamp(gate, bounds=1)
        up = clamp(up)
        swish = mul(gate, unary_saving_result("SigmoidBackward", mul_scalar(gate)))
        return mul(add_scalar(up), swish)

    def bias(self, run: ForwardRun, name: str, experts: Tensor) -> Tensor:
        return index_rows(run.parameter(self.parameters[f"{name}_bias"]), experts)


class SparseBlock(Module):
    """The router, then the experts."""

    transformers_class = "MLP"
    returns = 2

    def __init__(self, c: GptOssConfig) -> None:
        super().__init__()
        router = BiasedRouter(c.num_experts, c.hidden_size, balanced=c.output_router_logits)
        self.router = router.routes(c, normalizes=False, narrows=False)
        self.experts = BiasedExperts(c, c.ffn)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        shape = x.shape
        x = reshape(x, (-1, shape[-1]))
        _logits, scores, chosen = self.router(run, x)
        x = self.experts(run, x, chosen, scores)
        return reshape(x, shape)


class LateLayer(Layer):
    def __init__(self, c: GptOssConfig, self_attn: Module, mlp: Module) -> None:
        super().__init__(c, self_attn, mlp, norm=LateCastNorm)


class WideLossLM(CausalLM):
    liger_budget = 8


def build(c: GptOssConfig) -> Module:
    layers: list[Module] = [LateLayer(c, SinkAttention(c), SparseBlock(c)) for _ in range(c.num_hidden_layers)]
    return WideLossLM(c, SparseDecoder(c, layers, norm=LateCastNorm, rotary=HalfRotary))
