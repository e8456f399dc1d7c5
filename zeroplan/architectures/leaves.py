"""Which modules DeepSpeed's stage 3 takes as a whole, as `leaf_module` and the granularity threshold say.

utils/z3_leaf_module.py matches classes, names and suffixes; runtime/zero/parameter_offload.py measures granularity.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache

from zeroplan.architectures.module import Module, ModuleList, tree
from zeroplan.architectures.registry import FAMILIES
from zeroplan.specs.model import LeafModules

LARGEST = 1_000_000_000
"""Parameters above which no module becomes a leaf for its granularity."""


def leaf_paths(root: Module, model_type: str, leaves: LeafModules) -> frozenset[str]:
    """Paths of the modules that the settings make leaves; one inside another changes nothing."""
    if not concerns(model_type, leaves):
        return frozenset()
    result = {
        path for path, module in tree(root)
        if chosen(leaves, path, class_name(model_type, module.transformers_class))
    }  # fmt: skip
    if leaves.granularity_threshold > 0:
        granularity: dict[int, int] = {}
        measure(root, granularity)
        result.update(granular("", root, granularity, leaves.granularity_threshold))
    return frozenset(result)


def concerns(model_type: str, leaves: LeafModules) -> bool:
    """Whether any setting can match in this family: the defaults name three others by their modules."""
    folder = model_type.removesuffix("_text")
    ours, elsewhere = f".models.{folder}.", "transformers.models."
    classes = any(ours in name or not name.startswith(elsewhere) for name in leaves.classes)
    return bool(classes or leaves.names or leaves.name_suffixes or leaves.granularity_threshold > 0)


def chosen(leaves: LeafModules, path: str, class_: str) -> bool:
    """Classes match bare or in full, names in full, suffixes at the end of a name."""
    by_class = class_ in leaves.classes or class_.rpartition(".")[2] in leaves.classes
    return by_class or path in leaves.names or path.endswith(leaves.name_suffixes)


@cache
def class_name(model_type: str, transformers_class: str) -> str:
    """In full, what a module of this family calls by what follows the family's prefix."""
    if not transformers_class or "." in transformers_class:
        return transformers_class
    folder = model_type.removesuffix("_text")
    prefix = FAMILIES[model_type].removesuffix("Config").removesuffix("Text")
    return f"transformers.models.{folder}.modeling_{folder}.{prefix}{transformers_class}"


def measure(module: Module, granularity: dict[int, int]) -> tuple[int, int]:
    """Modules with parameters, here and below, and their parameters; tied tensors count each time.

    Notes, by identity, the parameters of each module that has others inside, divided by those modules and itself.
    """
    below = [measure(child, granularity) for child in module.children.values()]
    count, elements = sum(pair[0] for pair in below), sum(pair[1] for pair in below)
    elements += sum(parameter.elements for parameter in module.parameters.values())
    granularity[id(module)] = sys.maxsize
    if not count and not module.parameters:
        return 0, 0
    if isinstance(module, ModuleList):
        return count, elements
    if module.children and elements <= LARGEST:
        granularity[id(module)] = elements // (count + 1)
    return count + 1, elements


def granular(path: str, module: Module, granularity: dict[int, int], threshold: int) -> Iterator[str]:
    """The outermost modules whose granularity is at most the threshold; those without elements are passed over."""
    if not any(parameter.elements for _name, parameter in module.named_parameters()):
        return
    if granularity[id(module)] <= threshold:
        yield path
        return
    for name, child in module.children.items():
        yield from granular(f"{path}.{name}" if path else name, child, granularity, threshold)
