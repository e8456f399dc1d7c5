"""from_pretrained(device_map=...) in a training script: where it stands, and whether it surely is reached."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

CALL, ARGUMENT = "from_pretrained", "device_map"
BEFORE = re.compile(
    r"\w*TrainingArguments|parse_args_into_dataclasses|parse_args_and_config|Accelerator|HfDeepSpeedConfig"
)
"""Calls behind which transformers knows of stage 3."""
TRAINS = ("main", "train", "run", "sft")
"""Functions of a script whose lines run as it trains."""


class DeviceMap(NamedTuple):
    """A call that places a model on devices."""

    place: str
    """File and line."""
    is_sure: bool
    """Whether it runs whatever a condition or an option says."""


def device_map(name: str, text: str, options: Mapping[str, object]) -> DeviceMap | None:
    """The first of a script, `options` being what it is given; None for none, and where no model is placed."""
    if CALL not in text or ARGUMENT not in text:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    several = sorted(_calls(tree, options), key=lambda one: (not one[1], one[0]))
    return DeviceMap(f"{name}:{several[0][0]}", several[0][1]) if several else None


def _calls(tree: ast.Module, options: Mapping[str, object]) -> Iterator[tuple[int, bool]]:
    """The line of each, and whether it surely is reached."""
    values = {target.id: node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
              for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
    reached = set(_reached(tree.body))
    first = min((node.lineno for node in reached if isinstance(node, ast.Call) and BEFORE.fullmatch(_called(node))),
                default=None)  # fmt: skip
    for node, value in _stated(tree):
        plain = values.get(value.id) if isinstance(value, ast.Name) else value
        by_option = isinstance(value, ast.Attribute) and value.attr == ARGUMENT and _places(options.get(ARGUMENT))
        if by_option or isinstance(plain, ast.Dict) or _places(getattr(plain, "value", None)):
            is_sure = isinstance(node, ast.Call) and node in reached and plain is value
            yield node.lineno, is_sure and first is not None and first < node.lineno


def _stated(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Calls and dicts with such an argument, and its value: a dict may be unfolded in a call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) == CALL:
            yield from ((node, one.value) for one in node.keywords if one.arg == ARGUMENT)
        elif isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
            yield from ((node, value) for key, value in named if getattr(key, "value", "") == ARGUMENT)


def _called(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def _places(value: object) -> bool:
    """Whether it is the name of a way to place a model."""
    return isinstance(value, str) and value.lower() not in ("", "none", "null")


def _reached(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What is in no condition, loop or function but those that train; of `if __name__ == "__main__"` all."""
    for node in body:
        trains = isinstance(node, ast.FunctionDef) and node.name.startswith(TRAINS)
        is_main = isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
        if isinstance(node, ast.FunctionDef | ast.If | ast.With) and (trains or is_main or isinstance(node, ast.With)):
            yield from _reached(node.body)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
            yield from ast.walk(node)
