"""What the mixture-of-experts families share: their sizes, the router and the fused experts."""

from __future__ import annotations

from dataclasses import dataclass

from zeroplan.architectures.families.llama import Decoder
from zeroplan.architectures.module import Activation, Module, Parameter
from zeroplan.architectures.rope import RotaryConfig


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


class Experts(Module):
    """All experts of a layer in two 3-D parameters, [experts, out, in].

    transformers runs them at once (experts_implementation grouped_mm, the default).
    """

    transformers_class = "Experts"
    saves_views = True
    forward_order = ("gate_up_proj", "act_fn", "down_proj")
    saves_last = True

    def __init__(self, c: MoEConfig, ffn: int) -> None:
        super().__init__()
        self.gate_up_proj = Parameter(c.num_experts, 2 * ffn, c.hidden_size)
        self.down_proj = Parameter(c.num_experts, c.hidden_size, ffn)
        self.act_fn = Activation(c.hidden_act)


class SparseDecoder(Decoder):
    """For a load-balancing loss it returns the logits of every router too."""

    def __init__(self, c: MoEConfig, layers: list[Module]) -> None:
        super().__init__(c, layers)
        if c.output_router_logits:
            self.backward_fetches = 1 + sum(isinstance(module, Router) for _name, module in self.named_modules())


def sparse_layer(index: int, experts: int, step: int, dense_layers: list[int] | None) -> bool:
    """Qwen's rule: every `step`-th layer has experts, but for the layers named as dense."""
    return index not in (dense_layers or ()) and experts > 0 and (index + 1) % step == 0
