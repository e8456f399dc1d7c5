"""Where gradients flow in a tree of which some parameters do not train: the hooks that DeepSpeed has there fire.

Backward enters a module where something that it returns needs a gradient, and exits it where something that it is
given does (runtime/zero/parameter_offload.py: PreBackwardFunctionForModule, PostBackwardFunctionModule). One forward
pass on a short sequence tells both: its operators know which of their results need one.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.identical_layers import checkpointing_layers, input_embedding
from zeroplan.architectures.module import KEPT_TREES, Module
from zeroplan.architectures.trace import identities, run_forward
from zeroplan.autograd.tensor import Tensor
from zeroplan.specs.model import TimelineRequest

TOKENS = 8
"""Tokens of the pass: how many there are changes nothing."""


class GradientFlow:
    """The modules that backward enters, and those that it exits."""

    def __init__(self, entered: frozenset[int], exited: frozenset[int]) -> None:
        """Modules by identity."""
        self.entered, self.exited = entered, exited

    def enters(self, module: Module) -> bool:
        return id(module) in self.entered

    def exits(self, module: Module) -> bool:
        return id(module) in self.exited


class Everywhere(GradientFlow):
    """All parameters train."""

    def __init__(self) -> None:
        super().__init__(frozenset(), frozenset())

    def enters(self, _module: Module) -> bool:
        return True

    def exits(self, _module: Module) -> bool:
        return True


EVERYWHERE = Everywhere()


class FlowRun(ForwardRun):
    """A forward pass that notes what each module is given, and what it returns."""

    __slots__ = ("given", "returned")

    def __init__(self, attention: str, kernels: str) -> None:
        super().__init__(2, 1, TOKENS, attention=attention, kernel="flash", kernels=kernels)
        self.given: set[int] = set()
        self.returned: set[int] = set()

    def enter(self, module: object, inputs: tuple[Any, ...] = ()) -> int:
        if _needs_gradient(inputs):
            self.given.add(id(module))
        return super().enter(module, inputs)

    def leave(self, module: object, outer: int, out: Any = None) -> None:
        if _needs_gradient(out) or id(module) == self.opens:
            self.returned.add(id(module))
        super().leave(module, outer, out)


def _needs_gradient(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.node is not None
    return isinstance(value, tuple) and any(map(_needs_gradient, value))


@lru_cache(maxsize=2 * KEPT_TREES)
def gradient_flow(
    root: Module, frozen: frozenset[int], *, eager: bool, flash: bool, kernels: str, checkpoints: bool
) -> GradientFlow:
    """`frozen`: the tree's parameters that do not train, by their place among `named_parameters`; `checkpoints`: layers
    are, so that the words' embeddings ask for a gradient in any case (enable_input_require_grads).
    """
    if not frozen:
        return EVERYWHERE
    run = FlowRun("eager" if eager else "flash_attention_2" if flash else "sdpa", kernels)
    run.frozen = identities(root, frozen)
    run.opens = input_embedding(root) if checkpoints else 0
    run_forward(root, run)
    return GradientFlow(frozenset(run.returned), frozenset(run.given))


def layers_that_train(root: Module, request: TimelineRequest) -> tuple[Hashable, ...]:
    """The parameters of each layer that train, and whether backward enters and exits it; nothing where it is the same
    in all.
    """
    eager, flash, checkpoints = request.eager, request.flash, request.recomputing.every > 0
    return _layers_that_train(root, request.frozen, eager, flash, request.kernels, checkpoints)


@lru_cache(maxsize=2 * KEPT_TREES)
def _layers_that_train(
    root: Module, frozen: frozenset[int], eager: bool, flash: bool, kernels: str, checkpoints: bool
) -> tuple[Hashable, ...]:
    if not frozen:
        return ()
    flow = gradient_flow(root, frozen, eager=eager, flash=flash, kernels=kernels, checkpoints=checkpoints)
    still = identities(root, frozen)
    each = tuple([
        (tuple([id(p) in still for _name, p in layer.named_parameters()]), flow.enters(layer), flow.exits(layer))
        for layer in checkpointing_layers(root)
    ])  # fmt: skip
    return each if len(set(each)) > 1 else ()
