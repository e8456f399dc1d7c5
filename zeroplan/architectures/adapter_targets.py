"""Which modules and parameters of a model get an adapter.

peft 0.21.2: tuners/tuners_utils.py (check_target_module_exists, _maybe_include_all_linear_layers, _inject_parameters)
and utils/transformers_weight_conversion.py (_convert_peft_config_moe, _resolve_string_target_modules).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from zeroplan.architectures.module import Conv1D, Linear, Module
from zeroplan.architectures.quantized import QuantizedLinear
from zeroplan.architectures.registry import OUTPUTS
from zeroplan.errors import ContradictionError
from zeroplan.specs.adapter import SEQ_CLS, Adapter

CLASSIFIERS = ("score", "classifier")
INDEXED = r".*?\.[^.]*\.(\d+)\."
"""Where a module's name has the number of its layer."""


class OwnExperts(NamedTuple):
    """Names from when each expert was a module: of the projections that one parameter has now, the last, the router."""

    joined: tuple[str, ...]
    last: str
    router: str = "gate"

    @property
    def parameters(self) -> dict[str, str]:
        """What each name means now, by the end of a parameter's name."""
        return {self.router: "gate.weight", **dict.fromkeys(self.joined, JOINED), self.last: "down_proj"}


JOINED = "gate_up_proj"
OWN_EXPERTS = {
    "mixtral": OwnExperts(("w1", "w3"), "w2"),
    **dict.fromkeys(("qwen3_moe", "deepseek_v2", "deepseek_v3"), OwnExperts(("gate_proj", "up_proj"), "down_proj")),
}
"""Families whose names peft converts; other families' experts are targets only as `target_parameters`."""


def converted(adapter: Adapter, model_type: str, root: Module, name: str) -> Adapter:
    """The adapter with its experts as parameters where peft converts their names: that of the joined ones has their
    ranks together.

    What else has one of these names, as the projections of dense layers, is left without an adapter.
    """
    known = OWN_EXPERTS.get(model_type)
    if known is None:
        return adapter
    mapping = known.parameters
    targets = _resolved(adapter, mapping, root) if isinstance(adapter.target_modules, str) else adapter.target_modules
    if not targets:
        return adapter
    old = {target: _old_name(target, mapping) for target in targets}
    joined = [each for each in known.joined if each in old.values()]
    if joined and len(joined) < len(known.joined):
        missing = ", ".join(each for each in known.joined if each not in joined)
        raise ContradictionError(
            f"{name}: target_modules has {', '.join(joined)} without {missing}; one parameter, {JOINED}, holds both, "
            f"and peft refuses one of them; add {missing}"
        )
    parameters = {mapping[each] for each in old.values() if each}
    if joined:
        pattern = rf".*\.{JOINED}"
        ranks = {**dict(adapter.rank_pattern), pattern: adapter.r * len(joined)}
        alphas = {**dict(adapter.alpha_pattern), pattern: adapter.lora_alpha * len(joined)}
        adapter = adapter._replace(rank_pattern=tuple(ranks.items()), alpha_pattern=tuple(alphas.items()))
    return adapter._replace(
        target_modules=tuple(target for target in targets if not old[target]),
        target_parameters=tuple(dict.fromkeys((*adapter.target_parameters, *sorted(parameters)))),
    )


def old_names(model_type: str) -> frozenset[str]:
    """Names from when each expert was a module, which peft converts."""
    known = OWN_EXPERTS.get(model_type)
    return frozenset(known.parameters) if known else frozenset()


def _old_name(target: str, mapping: dict[str, str]) -> str:
    return next((old for old in mapping if target == old or target.endswith(f".{old}")), "")


def _resolved(adapter: Adapter, mapping: dict[str, str], root: Module) -> tuple[str, ...]:
    """The last parts of the names that `all-linear` or a regular expression stands for, those from before with them."""
    if adapter.targets_all_linear:
        linear = {path.rpartition(".")[2] for path in linear_modules(root, adapter)}
        return tuple(sorted(linear | mapping.keys()))
    is_named = is_target(adapter)
    paths = [path for path, _parameter in root.named_parameters()]
    matched = {path.rpartition(".")[2] for path in (*dict(root.named_modules()), *paths) if is_named(path)}
    for old, new in mapping.items():
        holders = [holder for holder, _dot, last in (path.rpartition(".") for path in paths) if last == new]
        if any(is_named(f"{holder}.{old}") for holder in holders):
            matched.add(old)
    return tuple(sorted(matched))


def target_modules(root: Module, adapter: Adapter) -> Iterator[str]:
    """Paths of the modules that get an adapter, in the order of registration."""
    is_named = is_target(adapter)
    every = linear_modules(root, adapter) if adapter.targets_all_linear else (path for path, _m in root.named_modules())
    return (path for path in every if path and is_named(path))


def target_parameters(root: Module, adapter: Adapter) -> Iterator[tuple[str, str]]:
    """Modules, and of each the parameters that get an adapter, in the order of registration; no other field of the
    adapter leaves one out.
    """
    matches = matching(adapter.target_parameters)
    for path, module in root.named_modules() if adapter.target_parameters else ():
        for name in module.parameters:
            if matches(f"{path}.{name}"):
                yield path, name


def is_target(adapter: Adapter) -> Callable[[str], bool]:
    """Whether the adapter has this path as a target; every one with `all-linear`."""
    matches = None if adapter.targets_all_linear else matching(adapter.target_modules)
    excluded = matching(adapter.exclude_modules)
    saved = [rf"(^|.*\.){each}($|\..*)" for each in adapter.saved_modules]

    def has(path: str) -> bool:
        if excluded(path) or any(re.match(each, path) for each in saved):
            return False
        return matches is None or (matches(path) and _in_layers(path, adapter))

    return has


def matching(names: Sequence[str] | str) -> Callable[[str], bool]:
    """Whether a path ends in one of these names, or is what a regular expression says."""
    if isinstance(names, str):
        expression = re.compile(names)
        return lambda path: bool(expression.fullmatch(path))
    ends = tuple(f".{name}" for name in names)
    return lambda path: path in names or path.endswith(ends)


def _in_layers(path: str, adapter: Adapter) -> bool:
    """Whether its layer is one of those to transform; a name that is the target itself is, wherever it lies."""
    if not adapter.layers_to_transform or path in adapter.target_modules:
        return True
    patterns = [rf"(?:^|.*?\.){each}\.(\d+)\." for each in adapter.layers_pattern] or [INDEXED]
    numbered = next((match for each in patterns if (match := re.match(each, path))), None)
    return numbered is not None and int(numbered[1]) in adapter.layers_to_transform


def linear_modules(root: Module, adapter: Adapter) -> Iterator[str]:
    """What `all-linear` stands for: every linear layer and Conv1D but the output's."""
    modules = dict(root.named_modules())
    output = next((path for path in OUTPUTS if path in modules), None)
    if output is None and adapter.task_type == SEQ_CLS:
        output = next((name for name in CLASSIFIERS if name in root.children), None)
    for path, module in modules.items():
        if isinstance(module, Linear | Conv1D | QuantizedLinear) and path != output:
            yield path
