"""A model with low-rank adapters: which modules and parameters peft gives one, and the tree that comes of it.

peft 0.21.2: tuners/tuners_utils.py (inject_adapter, _inject_parameters) and utils/other.py (_set_trainable,
get_pattern_key).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from zeroplan.architectures.adapter_targets import (
    converted,
    linear_modules,
    matching,
    old_names,
    target_modules,
    target_parameters,
)
from zeroplan.architectures.lora import (
    DoraLinear,
    DoraLinear4bit,
    LoraEmbedding,
    LoraLinear,
    LoraLinear4bit,
    LoraLinear8bit,
    ModulesToSave,
    ParamWrapper,
    PeftModel,
    TableToSave,
)
from zeroplan.architectures.model import of_tree
from zeroplan.architectures.module import Conv1D, Embedding, Linear, LookUp, Module, Unary, replace_module, tree
from zeroplan.architectures.profile import TreeProfile
from zeroplan.architectures.quantized import QuantizedLinear
from zeroplan.errors import ContradictionError, shown
from zeroplan.specs.adapter import ALL, ALL_LINEAR, LORA_ONLY, Adapter, is_added
from zeroplan.specs.model import Model
from zeroplan.specs.quantization import INT8

PREFIX = "base_model.model."
"""What peft puts before the names of the model's own parameters."""
MATRICES = (2, 3)
"""Dimensions of a parameter that may get an adapter by itself: a matrix, or one for each of several experts."""
WITH_BIAS = (LoraLinear, DoraLinear, ParamWrapper)
"""Around what may have a bias, which `lora_only` trains."""


def with_adapter(model: Model, adapter: Adapter) -> Model:
    """The model as get_peft_model gives it: adapters and what else of it trains, all other parameters frozen.

    Raises `ContradictionError` for what peft would not make, or for what is not planned.
    """
    profile = model.profile
    assert isinstance(profile, TreeProfile)
    if conflict := _conflict(adapter):
        raise ContradictionError(f"{model.name}: {conflict}")

    changed = profile.changed(lambda root: adapted(root, adapter, profile.model_type, model.name))
    fields = of_tree(changed)
    trains = [_trains(tensor.name, adapter) for tensor in fields["tensors"]]
    if adapter.bias == LORA_ONLY:
        wrapped = {path for path, module in tree(changed.root) if isinstance(module, WITH_BIAS)}
        for at, tensor in enumerate(fields["tensors"]):
            path, _dot, last = tensor.name.rpartition(".base_layer.")
            trains[at] = trains[at] or (last == "bias" and path in wrapped)
    tensors = tuple([t._replace(trainable=train) for t, train in zip(fields["tensors"], trains, strict=True)])
    return model._replace(**fields, adapter=adapter)._replace(tensors=tensors)


def _conflict(adapter: Adapter) -> str:
    """Fields that peft refuses together (tuners/lora/config.py:LoraConfig.__post_init__) and what to do, or nothing."""
    layers = [name for name in ("layers_to_transform", "layers_pattern") if getattr(adapter, name)]
    if layers and isinstance(adapter.target_modules, str):
        return (
            f"{layers[0]} with target_modules {shown(adapter.target_modules)}: peft takes it with a list of names "
            'only; write target_modules ["q_proj", "v_proj"]'
        )
    if layers == ["layers_pattern"]:
        return "layers_pattern without layers_to_transform: peft refuses that; write layers_to_transform [0, 1] too"
    if adapter.use_dora and adapter.lora_bias:
        return "use_dora with lora_bias: peft refuses that; leave one of them out"
    return ""


def unmatched(model: Model, adapter: Adapter) -> list[str]:
    """Names among the adapter's targets that no module of the model is named like: peft says nothing of them."""
    profile = model.profile
    assert isinstance(profile, TreeProfile)
    if isinstance(adapter.target_modules, str):
        return []
    paths = [path for path, _module in tree(profile.root)]
    known = old_names(profile.model_type)
    named = (name for name in adapter.target_modules if name not in known)
    return [name for name in named if not any(map(matching((name,)), paths))]


def _trains(name: str, adapter: Adapter) -> bool:
    if ".original_module." in name:
        return False
    return is_added(name) or (adapter.bias == ALL and name.endswith(".bias"))


def adapted(root: Module, adapter: Adapter, model_type: str, name: str) -> Module:
    """The tree with adapters in it; `name`: the model's, for errors."""
    modules = dict(root.named_modules())
    stated, adapter = adapter, converted(adapter, model_type, root, name)
    targets, parameters = list(target_modules(root, adapter)), list(target_parameters(root, adapter))
    if not targets and not parameters:
        known = sorted({path.rpartition(".")[2] for path in linear_modules(root, adapter)})
        raise ContradictionError(
            f"{name}: no module is named like {_shown(stated.target_modules, *stated.target_parameters)}; expected "
            f"names such as {', '.join(known)}, or {ALL_LINEAR}"
        )
    for path in targets:
        replace_module(modules, path, _with_adapter(path, modules[path], adapter, name))
    wrappers: dict[str, Module] = {}
    for path, parameter in parameters:
        if path in targets:
            raise ContradictionError(
                f"{name}: target_parameters: {path}.{parameter} is of a module that target_modules names; name it once"
            )
        wrapped = wrappers.get(path, modules[path])
        wrappers[path] = _with_parameter(f"{path}.{parameter}", wrapped, modules[path], adapter, name)
        replace_module(modules, path, wrappers[path])
    for path, module in modules.items():
        if path and any(path.endswith(each) for each in adapter.saved_modules):
            if not isinstance(module, Unary) or path in targets or path in wrappers:
                raise ContradictionError(
                    f"{name}: modules_to_save {shown(path.rpartition('.')[2])} is not planned; name a linear layer, a "
                    "norm or an embedding that has no adapter"
                )
            replace_module(modules, path, (TableToSave if isinstance(module, LookUp) else ModulesToSave)(module))
    inner = PeftModel(root, "model", "peft.tuners.lora.model.LoraModel")
    vars(inner)["called"] = adapter.task_type is not None  # without a task PeftModel calls the model past it
    return PeftModel(inner, "base_model", "peft.peft_model.PeftModel")


def _of_pattern(path: str, pattern: Sequence[tuple[str, float]]) -> Any:
    """What the first of the expressions that match a name is written with; None where none does."""
    return next((value for key, value in pattern if re.match(rf"(.*\.)?({key})$", path)), None)


def _with_parameter(path: str, module: Module, holder: Module, adapter: Adapter, name: str) -> ParamWrapper:
    """The module, which may have another parameter's wrapper around it, with a wrapper for this one of the holder's."""
    place = f"{name}: target_parameters: {path}"
    parameter = holder.parameters[path.rpartition(".")[2]]
    refused = {"lora_dropout": adapter.lora_dropout, "use_dora": adapter.use_dora, "lora_bias": adapter.lora_bias}
    if stated := [option for option, value in refused.items() if value]:
        raise ContradictionError(f"{place} with {' and '.join(stated)}: peft refuses that; leave one of them out")
    if len(parameter.shape) not in MATRICES or (parameter.shape[0] == 1 and holder.is_transposed):
        shape = ", ".join(map(str, parameter.shape))
        raise ContradictionError(f"{place} has the shape [{shape}]; expected a matrix, or one for each of some experts")
    if isinstance(holder, LookUp):
        raise ContradictionError(f"{place} is an embedding's, which is not planned; write it to target_modules")
    rank = _of_pattern(path, adapter.rank_pattern) or adapter.r
    alpha = _of_pattern(path, adapter.alpha_pattern)
    return ParamWrapper(module, adapter, parameter, rank, adapter.lora_alpha if alpha is None else alpha)


def _with_adapter(path: str, module: Module, adapter: Adapter, name: str) -> Module:
    rank = _of_pattern(path, adapter.rank_pattern) or adapter.r
    if isinstance(module, QuantizedLinear):
        eight = module.quantization.kind == INT8
        if adapter.use_dora:
            if eight:
                raise ContradictionError(f"{name}: use_dora with weights in int8 is not planned; write --quantize nf4")
            return DoraLinear4bit(module, adapter, rank)
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


def _shown(targets: Sequence[str] | str, *parameters: str) -> str:
    return shown(targets if isinstance(targets, str) else ", ".join((*targets, *parameters)))
