"""Calls of a Python file that take a DeepSpeed config, and who reads it there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.catalog.trainers.tools import TRL
from zeroplan.check.python_strategies import PLUGIN, STRATEGY, built_config
from zeroplan.check.setting import ACCELERATE, DEEPSPEED, LIGHTNING, TRAINER

ARGUMENTS = re.compile(r"\w*TrainingArguments")
OF_TRL = re.compile(r"\b(?:SFT|DPO|KTO|ORPO|CPO|GRPO|RLOO|PPO|GKD|Reward|OnlineDPO|PRM|XPO|NashMD|BCO)Config\b")
"""TrainingArguments of trl 1.16."""
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


def config_calls(tree: ast.Module) -> list[ConfigCall]:
    """The calls of a file that take a config, in the order of `ORDER`."""
    pipelines, dicts = _pipelines(tree), _dicts(tree)
    several = (_unfolded(node, dicts) for node in ast.walk(tree) if isinstance(node, ast.Call))
    calls = (one._replace(pipeline=_is_pipeline(one.call, pipelines), has_optimizer=_has_optimizer(one.call))
             for call in several for one in _config_calls(call))  # fmt: skip
    return sorted(calls, key=lambda one: ORDER.index(one.reader))


def _dicts(tree: ast.Module) -> dict[str, ast.Dict]:
    """Those that one line alone makes a name of."""
    nodes = list(ast.walk(tree))
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    named = ((target, node.value) for node in nodes if isinstance(node, ast.Assign) for target in node.targets)
    return {target.id: value for target, value in named
            if isinstance(target, ast.Name) and isinstance(value, ast.Dict) and stored[target.id] == 1}  # fmt: skip


def _unfolded(call: ast.Call, dicts: dict[str, ast.Dict]) -> ast.Call:
    """A call with the dict in place of its name behind **."""
    if all(one.arg is not None or getattr(one.value, "id", "") not in dicts for one in call.keywords):
        return call
    several = [ast.keyword(None, dicts[one.value.id]) if one.arg is None and isinstance(one.value, ast.Name)
               and one.value.id in dicts else one for one in call.keywords]  # fmt: skip
    return ast.copy_location(ast.Call(call.func, call.args, several), call)


def builds_pipeline(text: str) -> bool:
    """Whether all models that a file gives to deepspeed.initialize are PipelineModules."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    initialized = [call.pipeline for call in config_calls(tree) if call.reader == DEEPSPEED]
    return bool(initialized) and all(initialized)


def _pipelines(tree: ast.Module) -> set[str]:
    """PipelineModule, classes that are made of it, and names that every line sets to one."""
    nodes = list(ast.walk(tree))
    classes = {PIPELINE} | {node.name for node in nodes if isinstance(node, ast.ClassDef)
                            and any(_called(base) == PIPELINE for base in node.bases)}  # fmt: skip
    named = [(_called(target), node.value) for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    others = {name for name, value in named if not _makes(value, classes)}
    return classes | {name for name, value in named if name and name not in others and _makes(value, classes)}


def _makes(value: ast.expr, classes: set[str]) -> bool:
    return isinstance(value, ast.Call) and _called(value.func) in classes


def _is_pipeline(call: ast.Call, pipelines: set[str]) -> bool:
    model = next((one.value for one in call.keywords if one.arg == "model"), None)
    return model is not None and (_called(model) in pipelines or _makes(model, pipelines))


def _has_optimizer(call: ast.Call) -> bool:
    value = next((value for name, value in _keywords(call) if name == "optimizer"), None)
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def _called(node: ast.expr) -> str:
    """The last part of a name: PipelineModule, of deepspeed.pipe.PipelineModule."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _config_calls(call: ast.Call) -> Iterator[ConfigCall]:
    name = _called(call.func)
    if name == "initialize" and getattr(getattr(call.func, "value", None), "id", "") == "deepspeed":
        stated = list(_named(call, INITIALIZE))
        of_args = [] if stated else [_of_args(value) for value in _named(call, ("args",))]
        yield from (ConfigCall(DEEPSPEED, value, call) for value in (*stated, *of_args))
    elif ARGUMENTS.fullmatch(name) or OF_TRL.fullmatch(name):
        tool = TRL if OF_TRL.fullmatch(name) else ""
        yield from (ConfigCall(TRAINER, value, call, tool) for value in _named(call, ("deepspeed",)))
    elif name in CALLS:
        reader, names = CALLS[name]
        first = call.args[:1] if name in FIRST else []
        yield from (ConfigCall(reader, value, call) for value in (*_named(call, names), *first))
    if (built := built_config(call, name)) is not None:
        by, reader = (PLUGIN, ACCELERATE) if name == PLUGIN else (STRATEGY, LIGHTNING)
        yield ConfigCall(reader, built, call, built_by=by)


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
