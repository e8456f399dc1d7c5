"""The order in which a training step runs a tree of modules: forward, backward, and gradients becoming ready.

A module enters when DeepSpeed's hook before its forward or backward fetches its parameters, and exits when the
hook after it releases them; a module without parameters has these hooks too. One that enters backward and never
exits keeps its parameters to the end, where DeepSpeed releases what is left. A gradient is ready when the first
use of its parameter has run backward. What does not train has none, and backward does not go where nothing needs one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from zeroplan.architectures.gradient_flow import gradient_flow
from zeroplan.architectures.identical_layers import (
    checkpointing_layers,
    first_parameter,
    places_of_layers,
    signature_numbers,
)
from zeroplan.architectures.module import KEPT_TREES, Module, tree
from zeroplan.architectures.walk import Walk
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.execution import Execution, LayerPosition
from zeroplan.specs.on_demand import OnDemand

NO_LEAVES: frozenset[str] = frozenset()
EVERY_LAYER = Recomputing(1)


def execution(
    root: Module, leaves: frozenset[str] = NO_LEAVES, *, eager: bool = False, flash: bool = False,
    kernels: str = "transformers", recomputing: Recomputing = PLAIN, frozen: frozenset[int] = frozenset(),
) -> Execution:  # fmt: skip
    """`leaves`: paths of the modules fetched as a whole. `eager`, `flash`: with that attention. `frozen`: places of the
    parameters that do not train.
    """
    walk, result = walk_once(root, leaves, eager, flash, kernels, frozen, bool(frozen and recomputing.every))
    which = recomputing if recomputing.every else EVERY_LAYER
    return result._replace(recomputing=OnDemand(lambda: tuple(walk.recomputing(which))))


@lru_cache(maxsize=2 * KEPT_TREES)
def walk_once(
    root: Module, leaves: frozenset[str], eager: bool, flash: bool, kernels: str, frozen: frozenset[int],
    checkpoints: bool,
) -> tuple[Walk, Execution]:  # fmt: skip
    """One walk, and what follows from it whatever runs again; that is left empty here."""
    flow = gradient_flow(root, frozen, eager=eager, flash=flash, kernels=kernels, checkpoints=checkpoints)
    walk = Walk(root, leaves, eager=eager, flash=flash, kernels=kernels, flow=flow)
    whole = frozenset(place for path, place in walk.places.items() if path in leaves)
    return walk, Execution(
        modules=tuple(walk.places),
        forward=OnDemand(lambda: tuple(walk.steps.every())),
        backward=OnDemand(lambda: tuple(walk.backward())),
        recomputing=(),
        gradients=ready(walk.uses, frozen),
        gradients_stage_3=ready(walk.uses_stage3(), frozen),
        leaves=whole,
        subtrees=subtrees(root, walk) if whole else (),
        layers=tuple(layers(root, walk)),
        parametrized=parametrized(root, walk),
        computing=frozenset([walk.index[id(p)] for _path, module in tree(root) for p in module.computing]),
    )


@lru_cache(maxsize=2 * KEPT_TREES)
def attention_orders(root: Module) -> tuple[bool, bool]:
    """Whether eager attention, and whether the flash-attention package, runs modules in an order of its own."""
    modules = [module for _path, module in tree(root)]
    return any(module.eager_order for module in modules), any(module.flash_order for module in modules)


def layers(root: Module, walk: Walk) -> Iterator[LayerPosition]:
    """Layers below a leaf are not entered by themselves."""
    tensors: dict[int, int] = {}
    for layer, place, like in zip(
        checkpointing_layers(root), places_of_layers(root), signature_numbers(root, PLAIN, attending=False), strict=True
    ):
        if id(layer) not in walk.layer_places:
            continue
        if like not in tensors:
            tensors[like] = len({id(parameter) for _name, parameter in layer.named_parameters()})
        first = walk.index[first_parameter(layer)]
        yield LayerPosition(walk.layer_places[id(layer)], first, tensors[like], place)


def subtrees(root: Module, walk: Walk) -> tuple[tuple[int, ...], ...]:
    modules = dict(tree(root))
    return tuple(walk.below(modules[path]) for path in walk.places)


def parametrized(root: Module, walk: Walk) -> dict[int, tuple[int, ...]]:
    """Tensors that a module's hooks in forward do not see; those of a leaf, and of what is below one, are seen."""
    return {
        walk.places[path]: tuple([walk.index[id(parameter)] for parameter in module.parametrized])
        for path, module in tree(root)
        if module.parametrized and path in walk.places and path not in walk.leaves
    }


def ready(uses: list[int], frozen: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """Parameters that train by their first use, the latest first."""
    return tuple([index for index in reversed(dict.fromkeys(uses)) if index not in frozen])
