"""What the mixture-of-experts families share: their sizes, the router and the fused experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zeroplan.architectures.families.llama import Decoder
from zeroplan.architectures.forward_run import FLOAT, LONG, ForwardRun
from zeroplan.architectures.module import Activation, Module, Parameter
from zeroplan.architectures.rope import RotaryConfig
from zeroplan.autograd.elementwise import add_scalar, div_, mul, to
from zeroplan.autograd.indexing import index_rows, sort, topk
from zeroplan.autograd.products import grouped_mm, linear
from zeroplan.autograd.reductions import softmax, sum_over
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import chunk, reshape, transpose, unsqueeze, view

INT = 4


@dataclass(kw_only=True)
class MoEConfig(RotaryConfig):
    """A config with routed experts. `intermediate_size` is the width of dense layers, or of the experts."""

    num_experts: int
    num_experts_per_tok: int | None = None
    router_aux_loss_coef: float = 0.001
    output_router_logits: bool = False


class Router(Module):
    """One logit an expert; the weight is the module's own parameter.

    It returns logits and scores; the logits get a gradient from a load-balancing loss only.
    """

    transformers_class = "TopKRouter"
    returns = 2
    calls_linear = True
    saves_last = True

    def __init__(self, experts: int, hidden: int, *, balanced: bool = False) -> None:
        super().__init__()
        self.backward_fetches = 2 if balanced else 1
        self.weight = Parameter(experts, hidden)
        self.normalizes, self.narrows = True, False
        self.experts_per_token = 1

    def routes(self, c: MoEConfig, *, normalizes: bool, narrows: bool) -> Router:
        """How many experts a token is routed to, whether their scores add up to one, and are cast to the model's
        dtype.
        """
        self.experts_per_token = c.num_experts_per_tok or 1
        self.normalizes, self.narrows = normalizes, narrows
        return self

    def forward(self, run: ForwardRun, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits, the scores of the experts chosen, and which they are."""
        x = reshape(x, (-1, x.shape[-1]))
        logits = linear(x, run.parameter(self.weight))
        fused = self.narrows and run.half and not run.on_cpu
        probabilities = softmax(logits, FLOAT, fused=fused)
        scores, chosen = topk(probabilities, self.experts_per_token)
        if self.normalizes:
            scores = div_(scores, sum_over(scores, -1, stays=True))
        if self.narrows:
            scores = to(scores, logits.width)
        return logits, scores, chosen


class Experts(Module):
    """All experts of a layer in two 3-D parameters, [experts, out, in].

    transformers runs them at once (experts_implementation grouped_mm, the default).
    """

    transformers_class = "Experts"
    saves_views = True
    forward_order: tuple[str, ...] = ("gate_up_proj", "act_fn", "down_proj")
    liger_order: tuple[str, ...] | None = ("gate_up_proj", "down_proj")
    saves_last = True
    liger_patches: ClassVar[bool] = True
    """Liger's kernel runs in its place, if Liger is asked for."""

    def __init__(self, c: MoEConfig, ffn: int) -> None:
        super().__init__()
        self.gate_up_proj = Parameter(c.num_experts, 2 * ffn, c.hidden_size)
        self.down_proj = Parameter(c.num_experts, c.hidden_size, ffn)
        self.act_fn = Activation(c.hidden_act)

    def gated(self, run: ForwardRun, x: Tensor) -> Tensor:
        gate, up = chunk(x, 2, -1)
        return mul(self.act_fn(run, gate), up)

    def product(self, x: Tensor, weight: Tensor, offsets: Tensor, _bias: Tensor | None) -> Tensor:
        return grouped_mm(x, transpose(weight, 1, 2), offsets)

    def bias(self, _run: ForwardRun, _name: str, _experts: Tensor) -> Tensor | None:
        """What is added to a product, row by row."""
        return None

    def forward(self, run: ForwardRun, x: Tensor, chosen: Tensor, scores: Tensor) -> Tensor:
        if run.liger and self.liger_patches:
            from zeroplan.autograd import liger

            places = empty(run, chosen.shape, INT)
            return liger.experts(
                x, run.parameter(self.gate_up_proj), run.parameter(self.down_proj), places, scores
            )
        return self.written_out(run, x, chosen, scores)

    def written_out(self, run: ForwardRun, x: Tensor, chosen: Tensor, scores: Tensor) -> Tensor:
        """Tokens in the order of their experts, through them, weighted, back in their own order, and summed."""
        tokens, hidden = x.shape
        each = chosen.shape[-1]
        scores = reshape(scores, (-1,))
        chosen = reshape(chosen, (-1,))
        experts, order = sort(chosen)
        rows = index_rows(x, add_scalar(order))
        scores = index_rows(scores, order)
        counted = empty(run, experts.shape, FLOAT)  # noqa: F841 (alive while forward runs)
        counts = empty(run, (self.gate_up_proj.shape[0],), FLOAT)
        offsets = empty(run, counts.shape, INT)
        weight = run.parameter(self.gate_up_proj)
        bias = self.bias(run, "gate_up_proj", experts)
        out = self.product(rows, weight, offsets, bias)
        out = self.gated(run, out)
        weight = run.parameter(self.down_proj)
        bias = self.bias(run, "down_proj", experts)
        out = self.product(out, weight, offsets, bias)
        weighted = mul(out, unsqueeze(scores, 1))
        back = empty(run, order.shape, LONG)
        places = empty(run, order.shape, LONG)
        del places
        weighted = index_rows(weighted, back)
        summed = sum_over(view(weighted, (tokens, each, hidden)), 1)
        return to(summed, x.width)


class SparseDecoder(Decoder):
    """For a load-balancing loss it returns the logits of every router too."""

    def __init__(self, c: MoEConfig, layers: list[Module], **parts: Any) -> None:
        super().__init__(c, layers, **parts)
        if c.output_router_logits:
            self.backward_fetches = 1 + sum(isinstance(module, Router) for _name, module in self.named_modules())


def sparse_layer(index: int, experts: int, step: int, dense_layers: list[int] | None) -> bool:
    """Qwen's rule: every `step`-th layer has experts, but for the layers named as dense."""
    return index not in (dense_layers or ()) and experts > 0 and (index + 1) % step == 0
