"""A model with low-rank adapters: which modules peft gives one, and the tree that comes of it.

peft 0.21.2: tuners/tuners_utils.py (inject_adapter, check_target_module_exists, _maybe_include_all_linear_layers) and
utils/other.py (_set_trainable, get_pattern_key).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zeroplan.architectures.config import Config
from zeroplan.architectures.lora import (
    DoraLinear,
    LoraEmbedding,
    LoraLinear,
    LoraLinear4bit,
    LoraLinear8bit,
    ModulesToSave,
    PeftModel,
    TableToSave,
)
from zeroplan.architectures.model import of_tree
from zeroplan.architectures.module import Conv1D, Embedding, Linear, LookUp, Module, Unary, replace_module
from zeroplan.architectures.profile import TracedProfile
from zeroplan.architectures.quantized import OUTPUTS, QuantizedLinear
from zeroplan.errors import ContradictionError, shown
from zeroplan.specs.adapter import ALL, ALL_LINEAR, LORA_ONLY, SEQ_CLS, Adapter, is_added
from zeroplan.specs.model import Model
from zeroplan.specs.quantization import INT8

PREFIX = "base_model.model."
"""What peft puts before the names of the model's own parameters."""
CLASSIFIERS = ("score", "classifier")
INDEXED = r".*?\.[^.]*\.(\d+)\."
"""Where a module's name has the number of its layer."""


def with_adapter(model: Model, adapter: Adapter) -> Model:
    """The model as get_peft_model gives it: adapters and what else of it trains, all other parameters frozen.

    Raises `ContradictionError` for what peft would not make, or for what is not planned.
    """
    profile = model.profile
    assert isinstance(profile, TracedProfile)
    def build(config: Config) -> Module:
        return adapted(profile.build(config), adapter, model.name)

    root = build(profile.config)
    fields = of_tree(root, profile.model_type, profile.config, build)
    trains = [_trains(tensor.name, adapter) for tensor in fields["tensors"]]
    wrapped = {path for path, module in root.named_modules() if isinstance(module, LoraLinear | DoraLinear)}
    if adapter.bias == LORA_ONLY:
        for at, tensor in enumerate(fields["tensors"]):
            path, _dot, last = tensor.name.rpartition(".base_layer.")
            trains[at] = trains[at] or (last == "bias" and path in wrapped)
    fields["tensors"] = tuple([t._replace(trainable=one) for t, one in zip(fields["tensors"], trains, strict=True)])
    return model._replace(**fields, adapter=adapter)


def unmatched(model: Model, adapter: Adapter) -> list[str]:
    """Names among the adapter's targets that no module of the model is named like: peft says nothing of them."""
    profile = model.profile
    assert isinstance(profile, TracedProfile)
    if isinstance(adapter.target_modules, str):
        return []
    paths = [path for path, _module in profile.root.named_modules()]
    return [name for name in adapter.target_modules if not any(map(_matching((name,)), paths))]


def _trains(name: str, adapter: Adapter) -> bool:
    if ".original_module." in name:
        return False
    return is_added(name) or (adapter.bias == ALL and name.endswith(".bias"))


def adapted(root: Module, adapter: Adapter, name: str) -> Module:
    """The tree with adapters in it; `name`: the model's, for errors."""
    modules = dict(root.named_modules())
    targets = list(_targets(root, modules, adapter))
    if not targets:
        known = sorted({path.rpartition(".")[2] for path in _linear(root, modules, adapter)})
        raise ContradictionError(
            f"{name}: no module is named like {_shown(adapter.target_modules)}; expected names such as "
            f"{', '.join(known)}, or {ALL_LINEAR}"
        )
    for path in targets:
        replace_module(modules, path, _with_adapter(path, modules[path], adapter, name))
    for path, module in modules.items():
        if path and any(path.endswith(each) for each in adapter.saved_modules):
            if not isinstance(module, Unary) or path in targets:
                raise ContradictionError(
                    f"{name}: modules_to_save {shown(path.rpartition('.')[2])} is not planned; name a linear layer, a "
                    "norm or an embedding that has no adapter"
                )
            replace_module(modules, path, (TableToSave if isinstance(module, LookUp) else ModulesToSave)(module))
    inner = PeftModel(root, "model", "peft.tuners.lora.model.LoraModel")
    vars(inner)["called"] = adapter.task_type is not None  # without a task PeftModel calls the model past it
    return PeftModel(inner, "base_model", "peft.peft_model.PeftModel")


def _with_adapter(path: str, module: Module, adapter: Adapter, name: str) -> Module:
    rank = next((r for key, r in adapter.rank_pattern if re.match(rf"(.*\.)?({key})$", path)), adapter.r)
    if isinstance(module, QuantizedLinear):
        if adapter.use_dora:
            raise ContradictionError(f"{name}: use_dora with quantized weights is not planned; leave one of them out")
        eight = module.quantization.kind == INT8
        return (LoraLinear8bit if eight else LoraLinear4bit)(module, adapter, rank)
    if isinstance(module, Linear | Conv1D):
        return (DoraLinear if adapter.use_dora else LoraLinear)(module, adapter, rank)
    if isinstance(module, Embedding) and not adapter.use_dora and not adapter.lora_bias:
        return LoraEmbedding(module, adapter, rank)
    kind = module.transformers_class.rpartition(".")[2] or type(module).__name__
    raise ContradictionError(
        f"{name}: target_modules: found {path}, a {kind}, expected linear layers or, without use_dora and lora_bias, "
        f"an embedding; write the names of linear layers, or {ALL_LINEAR}"
    )


def _targets(root: Module, modules: dict[str, Module], adapter: Adapter) -> Iterator[str]:
    """Paths of the modules that get an adapter, in the order of registration."""
    every = set(_linear(root, modules, adapter)) if _is_all_linear(adapter.target_modules) else None
    matches = _matching(adapter.target_modules)
    excluded = _matching(adapter.exclude_modules)
    saved = [rf"(^|.*\.){each}($|\..*)" for each in adapter.saved_modules]
    for path in modules:
        if not path or excluded(path) or any(re.match(each, path) for each in saved):
            continue
        if path in every if every is not None else matches(path) and _in_layers(path, adapter):
            yield path


def _is_all_linear(targets: Sequence[str] | str) -> bool:
    return isinstance(targets, str) and targets.lower() == ALL_LINEAR


def _matching(names: Sequence[str] | str) -> Callable[[str], bool]:
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
    found = next((match for each in patterns if (match := re.match(each, path))), None)
    return found is not None and int(found[1]) in adapter.layers_to_transform


def _linear(root: Module, modules: dict[str, Module], adapter: Adapter) -> Iterator[str]:
    """What `all-linear` stands for: every linear layer and Conv1D but the output's."""
    output = next((path for path in OUTPUTS if path in modules), None)
    if output is None and adapter.task_type == SEQ_CLS:
        output = next((name for name in CLASSIFIERS if name in root.children), None)
    for path, module in modules.items():
        if isinstance(module, Linear | Conv1D | QuantizedLinear) and path != output:
            yield path


def _shown(targets: Any) -> str:
    return shown(targets if isinstance(targets, str) else ", ".join(targets))
