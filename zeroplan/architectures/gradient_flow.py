"""Where gradients flow in a tree of which some parameters do not train: the hooks that DeepSpeed has there fire.

Backward enters a module where something that it returns needs a gradient, and exits it where something that it is
given does (runtime/zero/parameter_offload.py: PreBackwardFunctionForModule, PostBackwardFunctionModule). One forward
pass on a short sequence tells both: its operators know which of their results need one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from functools import lru_cache
from typing import Any

from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.identical_layers import checkpointing_layers, input_embeddings, signature_numbers
from zeroplan.architectures.module import KEPT_TREES, Module
from zeroplan.architectures.trace import identities, run_forward
from zeroplan.autograd.tensor import Tensor
from zeroplan.specs.checkpointing import PLAIN
from zeroplan.specs.model import TimelineRequest

TOKENS = 8
"""Tokens of the pass: how many there are changes nothing."""


class GradientFlow:
    """The modules that backward enters, and those that it exits."""

    def __init__(self, entered: Set[int], exited: Set[int], representative: Mapping[int, int]) -> None:
        """Modules by identity; `representative`: of each layer one in which the same modules are entered and exited."""
        self.entered, self.exited, self.representative = entered, exited, representative

    def enters(self, module: Module) -> bool:
        return id(module) in self.entered

    def exits(self, module: Module) -> bool:
        return id(module) in self.exited


class Everywhere(GradientFlow):
    """All parameters train."""

    def __init__(self) -> None:
        super().__init__(frozenset(), frozenset(), {})

    def enters(self, _module: Module) -> bool:
        return True

    def exits(self, _module: Module) -> bool:
        return True


EVERYWHERE = Everywhere()


class FlowRun(ForwardRun):
    """A forward pass that notes what each module is given, and what it returns.

    A layer does not run where one has of which the same parameters train, and which was given the same gradients.
    """

    __slots__ = ("given", "layers", "ran", "representative", "returned")

    def __init__(self, attention: str, kernels: str, layers: Mapping[int, Hashable]) -> None:
        """`layers`: what each layer is and what of it trains, by identity."""
        super().__init__(2, 1, TOKENS, attention=attention, kernel="flash", kernels=kernels)
        self.layers = layers
        self.ran: dict[Hashable, Module] = {}
        self.representative: dict[Module, Module] = {}
        self.given: set[int] = set()
        self.returned: set[int] = set()

    def passes_over(self, layer: Any, inputs: tuple[Any, ...]) -> bool:
        """It stands for what it returns only where that needs a gradient as what it is given does."""
        needs = _needs_gradient(inputs[0])
        ran = self.ran.setdefault((self.layers[id(layer)], needs, _needs_gradient(inputs[1:])), layer)
        if ran is layer or (id(ran) in self.returned) != needs:
            return False
        self.representative[layer] = ran
        return True

    def flow(self) -> GradientFlow:
        """Of all layers, once it has run."""
        for layer, ran in self.representative.items():
            pairs = zip(layer.named_modules(), ran.named_modules(), strict=True)
            same = [(id(module), id(like)) for (_path, module), (_of, like) in pairs]
            for noted in (self.given, self.returned):
                noted.update([module for module, like in same if like in noted])
        representative = {id(layer): id(ran) for layer, ran in self.representative.items()}
        return GradientFlow(self.returned, self.given, {**{layer: layer for layer in self.layers}, **representative})

    def enter(self, module: object, inputs: tuple[Any, ...] = ()) -> int:
        if _needs_gradient(inputs):
            self.given.add(id(module))
        return super().enter(module, inputs)

    def leave(self, module: object, outer: int, out: Any = None) -> None:
        if _needs_gradient(out) or id(module) in self.opens:
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
    layers = checkpointing_layers(root)
    of_layers = zip(signature_numbers(root, PLAIN), trainable_of_layers(root, frozen), strict=True)
    kinds = dict(zip(map(id, layers), of_layers, strict=True))
    run = FlowRun("eager" if eager else "flash_attention_2" if flash else "sdpa", kernels, kinds)
    run.frozen = identities(root, frozen)
    run.opens = input_embeddings(root) if checkpoints else frozenset()
    run_forward(root, run)
    return run.flow()


@lru_cache(maxsize=KEPT_TREES)
def trainable_of_layers(root: Module, frozen: frozenset[int]) -> list[tuple[bool, ...]]:
    """Whether each parameter of each layer trains."""
    still = identities(root, frozen)
    return [
        tuple([id(p) not in still for _name, p in layer.named_parameters()]) for layer in checkpointing_layers(root)
    ]


def layers_that_train(root: Module, request: TimelineRequest) -> tuple[Hashable, ...]:
    """A number for each layer: one for those of which the same parameters train, and which backward enters and exits
    alike; nothing where it is the same for all.
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
    known: dict[Hashable, int] = {}
    each = tuple([
        known.setdefault((trains, flow.enters(layer), flow.exits(layer)), len(known))
        for layer, trains in zip(checkpointing_layers(root), trainable_of_layers(root, frozen), strict=True)
    ])  # fmt: skip
    return each if len(known) > 1 else ()
