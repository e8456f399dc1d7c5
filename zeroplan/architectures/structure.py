"""Where the modules and tensors of a tree are, and which layers represent which in a run."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

from zeroplan.architectures.identical_layers import chains_of, checkpointing_layers, first_parameter
from zeroplan.architectures.module import KEPT_TREES, Module, tree
from zeroplan.specs.execution import Execution

OUTSIDE = -1
"""In place of a layer's number: before the layers or after them."""


class Numbered(NamedTuple):
    """Numbers of modules and of tensors, by identity."""

    places: dict[int, int]
    around: dict[int, tuple[int, ...]]
    """The places of all modules around a module and its own: a ModuleList has none, nor what lies in a leaf."""
    tensors: dict[int, int]
    first_tensor: list[int]
    """The first tensor of each layer."""


@lru_cache(maxsize=KEPT_TREES)
def numbered(root: Module, modules: tuple[str, ...]) -> Numbered:
    """`modules`: paths of those that run, in order."""
    result = Numbered({}, {}, {}, [])
    places = {path: place for place, path in enumerate(modules)}
    around: dict[str, tuple[int, ...]] = {"": ()}
    for path, module in tree(root):
        place = result.places[id(module)] = places.get(path, OUTSIDE)
        outer = around[path.rpartition(".")[0]]
        result.around[id(module)] = around[path] = outer if place == OUTSIDE else (*outer, place)
        for parameter in module.parameters.values() if module.parameters else ():
            result.tensors.setdefault(id(parameter), len(result.tensors))
    result.first_tensor.extend(result.tensors[first_parameter(layer)] for layer in checkpointing_layers(root))
    return result


class Structure:
    """Where modules and tensors are; of each layer its first module and tensor, and the layer that runs for it."""

    def __init__(self, root: Module, execution: Execution, layers: list[tuple[int, int]]) -> None:
        """`layers`: as `representatives` has them."""
        self.root, self.execution, self.layers = root, execution, layers
        self.places, self.around, self.tensors, self.first_tensor = numbered(root, execution.modules)
        self.numbers = {key: number for number, (key, _chosen) in enumerate(self.layers)}
        self.representative = [self.numbers[chosen] for _key, chosen in self.layers]
        self.chains = chains_of(root)
        self.starts = {chain.start for chain in self.chains}
        self.first_module = [self.places[key] for key, _chosen in self.layers]

    @cached_property
    def paths(self) -> dict[int, str]:
        """The path of each module, by identity."""
        return {id(module): path for path, module in tree(self.root)}

    @cached_property
    def layer_of(self) -> list[int]:
        """The layer that each module lies in: modules are numbered in the order of forward."""
        result = [OUTSIDE] * len(self.execution.modules)
        inside = OUTSIDE
        starts = {place: number for number, place in enumerate(self.first_module)}
        for enters, module, _tensors, _backward in self.execution.forward:
            if module in starts:
                inside = starts[module] if enters else OUTSIDE
                result[module] = starts[module]
            elif inside != OUTSIDE:
                result[module] = inside
        return result
