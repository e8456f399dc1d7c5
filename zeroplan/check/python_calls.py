"""Calls of a Python file that take a DeepSpeed config, and who reads it there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from zeroplan.catalog.trainers.tools import TRL
from zeroplan.check.python_nodes import last_name, parsed
from zeroplan.check.python_strategies import PLUGIN, STRATEGY, built_config
from zeroplan.check.setting import ACCELERATE, DEEPSPEED, LIGHTNING, TRAINER

ARGUMENT_CLASS = re.compile(r"\w*TrainingArguments")
OF_TRL = re.compile(r"\b(?:SFT|DPO|KTO|ORPO|CPO|GRPO|RLOO|PPO|GKD|Reward|OnlineDPO|PRM|XPO|NashMD|BCO)Config\b")
"""TrainingArguments of trl 1.16."""
WITH_REFERENCE = re.compile(r"^[^#\n]*\b(?:DPO|KTO|BCO)Trainer\(", re.MULTILINE)
WITHOUT_REFERENCE = re.compile(r"peft_config|get_peft_model|PeftModel|precompute_ref_log_probs")
AT_STAGE_3 = "zero.Init"
"""The reader where from_pretrained hands the config to DeepSpeed at stage 3, and nobody reads it below (transformers
5.24 integrations/deepspeed.py:HfDeepSpeedConfig, run: TypeError for "auto").
"""
PIPELINE = "PipelineModule"
INITIALIZE = ("config", "config_params")
CALLS = {
    "HfDeepSpeedConfig": (AT_STAGE_3, ("config_file_or_dict",)),
    PLUGIN: (ACCELERATE, ("hf_ds_config",)),
    STRATEGY: (LIGHTNING, ("config",)),
    "Init": (DEEPSPEED, ("config_dict_or_path", "config")),
}
"""By the name that is called: who reads the config, and what the argument is called."""
FIRST = ("HfDeepSpeedConfig", PLUGIN)
"""Calls whose first argument it is."""
ORDER = (DEEPSPEED, TRAINER, ACCELERATE, LIGHTNING, AT_STAGE_3)
"""Who counts where several calls take the same config."""


class ConfigCall(NamedTuple):
    """A call that takes a config."""

    reader: str
    value: ast.expr
    call: ast.Call
    tool: str = ""
    """Whose TrainingArguments they are, where that is not the Trainer's own."""
    pipeline: bool = False
    """Whether the model is a PipelineModule of DeepSpeed's."""
    has_optimizer: bool = False
    """Whether the call is given an optimizer, which DeepSpeed takes in place of the config's."""
    built_by: str = ""
    """The class that builds it of the call's other arguments; "" for a config that stands there."""


def config_calls(tree: ast.Module, constants: Mapping[str, ast.expr] = MappingProxyType({})) -> list[ConfigCall]:
    """The calls of a file that take a config, in the order of `ORDER`. `constants`: what its names stand for."""
    pipelines = _pipelines(tree)
    several = (_unfolded(node, constants) for node in ast.walk(tree) if isinstance(node, ast.Call))
    calls = (one._replace(pipeline=_is_pipeline(one.call, pipelines), has_optimizer=_has_optimizer(one.call))
             for call in several for one in _config_calls(call))  # fmt: skip
    return sorted(calls, key=lambda one: ORDER.index(one.reader))


def _unfolded(call: ast.Call, constants: Mapping[str, ast.expr]) -> ast.Call:
    """A call with the dict in place of its name behind **."""
    several = [one if one.arg is not None else ast.keyword(None, constants.get(getattr(one.value, "id", ""), one.value))
               for one in call.keywords]  # fmt: skip
    return ast.copy_location(ast.Call(call.func, call.args, several), call)


def has_reference(text: str) -> bool:
    """Whether a script trains by a trainer of TRL's with a reference model, and no adapters, which need none."""
    return WITH_REFERENCE.search(text) is not None and WITHOUT_REFERENCE.search(text) is None


def builds_pipeline(text: str) -> bool:
    """Whether all models that a file gives to deepspeed.initialize are PipelineModules."""
    tree = parsed(text)
    calls = [] if tree is None else config_calls(tree)
    initialized = [call.pipeline for call in calls if call.reader == DEEPSPEED]
    return bool(initialized) and all(initialized)


def _pipelines(tree: ast.Module) -> set[str]:
    """PipelineModule, classes that are made of it, and names that every line sets to one."""
    nodes = list(ast.walk(tree))
    classes = {PIPELINE} | {node.name for node in nodes if isinstance(node, ast.ClassDef)
                            and any(last_name(base) == PIPELINE for base in node.bases)}  # fmt: skip
    assigned = (node for node in nodes if isinstance(node, ast.Assign))
    named = [(last_name(target), node.value) for node in assigned for target in node.targets]
    others = {name for name, value in named if not _makes(value, classes)}
    return classes | {name for name, value in named if name and name not in others and _makes(value, classes)}


def _makes(value: ast.expr, classes: set[str]) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in classes


def _is_pipeline(call: ast.Call, pipelines: set[str]) -> bool:
    model = next((one.value for one in call.keywords if one.arg == "model"), None)
    return model is not None and (last_name(model) in pipelines or _makes(model, pipelines))


def _has_optimizer(call: ast.Call) -> bool:
    value = next((value for name, value in _keywords(call) if name == "optimizer"), None)
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def _config_calls(call: ast.Call) -> Iterator[ConfigCall]:
    name = last_name(call.func)
    if name == "initialize" and getattr(getattr(call.func, "value", None), "id", "") == "deepspeed":
        stated = list(_named(call, INITIALIZE))
        of_args = [] if stated else [_of_args(value) for value in _named(call, ("args",))]
        yield from (ConfigCall(DEEPSPEED, value, call) for value in (*stated, *of_args))
    elif (tool := tool_of_call(name)) is not None:
        yield from (ConfigCall(TRAINER, value, call, tool) for value in _named(call, ("deepspeed",)))
    elif name in CALLS:
        reader, names = CALLS[name]
        first = call.args[:1] if name in FIRST else []
        yield from (ConfigCall(reader, value, call) for value in (*_named(call, names), *first))
        if name == PLUGIN:  # as Lightning called its strategy before 1.6
            yield from (ConfigCall(LIGHTNING, value, call) for value in _named(call, CALLS[STRATEGY][1]))
    if (built := built_config(call, name)) is not None:
        by, reader = (PLUGIN, ACCELERATE) if name == PLUGIN else (STRATEGY, LIGHTNING)
        yield ConfigCall(reader, built, call, built_by=by)


def tool_of_call(name: str) -> str | None:
    """Whose arguments a class has: "" for the Trainer's own, None for no arguments."""
    return TRL if OF_TRL.fullmatch(name) else "" if ARGUMENT_CLASS.fullmatch(name) else None


def _of_args(args: ast.expr) -> ast.expr:
    """What deepspeed.initialize reads where it is given no config (__init__.py)."""
    return ast.copy_location(ast.Attribute(args, "deepspeed_config", ast.Load()), args)


def _named(call: ast.Call, names: tuple[str, ...]) -> Iterator[ast.expr]:
    return (value for name, value in _keywords(call) if name in names)


def _keywords(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Those of a call, and of a dict that is unfolded in it."""
    for one in call.keywords:
        if one.arg is not None:
            yield one.arg, one.value
        elif isinstance(one.value, ast.Dict):
            yield from ((str(getattr(key, "value", "")), value) for key, value in zip(
                one.value.keys, one.value.values, strict=True))  # fmt: skip
