"""Which layers of a tree are alike: one of them can stand for the others."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from zeroplan.architectures.module import GradientCheckpointingLayer, Module

KEPT_TREES = 8


@lru_cache(maxsize=KEPT_TREES)
def layers_of(root: Module) -> list[Module]:
    """The layers that checkpointing knows, in order."""
    return [module for _path, module in root.named_modules() if isinstance(module, GradientCheckpointingLayer)]


@lru_cache(maxsize=KEPT_TREES)
def representatives(root: Module) -> list[tuple[int, int]]:
    """Of each layer, in order: itself and the layer that runs for it, by identity.

    The first layer of each make and the last of all stand for themselves, the others for the next of their make.

    What layers of one make share (cosines, a mask) goes with the first of them in backward.
    """
    first: set[int] = set()
    found: dict[int, int] = {}
    pairs = []
    layers = layers_of(root)
    for layer, kind in zip(layers, makes(root), strict=True):
        if kind not in first or layer is layers[-1]:
            first.add(kind)
            pairs.append((id(layer), id(layer)))
        else:
            pairs.append((id(layer), found.setdefault(kind, id(layer))))
    return pairs


@lru_cache(maxsize=KEPT_TREES)
def makes(root: Module) -> list[int]:
    """Of each layer the number of its make."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(make(layer), len(known)) for layer in layers_of(root)]


def make(module: Module) -> Hashable:
    """What tells layers apart: the modules, the shapes of their parameters, and the kind of attention."""
    shapes = [parameter.shape for parameter in module.parameters.values()]
    children = [make(child) for child in module.children.values()] if module.children else ()
    return type(module), getattr(module, "kind", ""), *shapes, *children


def first_parameter(module: Module) -> int:
    """The parameter registered first in a module or below, by identity."""
    for parameter in module.parameters.values():
        return id(parameter)
    for child in module.children.values():
        if found := first_parameter(child):
            return found
    return 0
