"""from_pretrained(device_map=...) in a training script: where it stands, and whether it surely is reached."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zeroplan.check.python_nodes import last_name, parsed

CALL, ARGUMENT = "from_pretrained", "device_map"
OTHERS = re.compile(r"Tokenizer|Processor|Extractor|Config")
"""What has no weights."""
BEFORE = re.compile(
    r"\w*TrainingArguments|parse_args_into_dataclasses|parse_args_and_config|Accelerator|HfDeepSpeedConfig"
)
"""Calls behind which transformers knows of stage 3."""


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
    tree = parsed(text)
    if tree is None:
        return None
    several = sorted(_calls(tree, options), key=lambda one: (not one[1], one[0]))
    return DeviceMap(f"{name}:{several[0][0]}", several[0][1]) if several else None


def _calls(tree: ast.Module, options: Mapping[str, object]) -> Iterator[tuple[int, bool]]:
    """The line of each, and whether it surely is reached."""
    values = {target.id: node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)
              for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
    reached = _reached(tree)
    calls = [node for node in reached if isinstance(node, ast.Call)]
    first = min((call.lineno for call in calls if BEFORE.fullmatch(last_name(call.func))), default=None)
    for node, value in _stated(tree):
        plain = values.get(value.id) if isinstance(value, ast.Name) else value
        by_option = isinstance(value, ast.Attribute) and value.attr == ARGUMENT and _places(options.get(ARGUMENT))
        if by_option or isinstance(plain, ast.Dict) or _places(getattr(plain, "value", None)):
            is_sure = isinstance(node, ast.Call) and node in reached and plain is value
            yield node.lineno, is_sure and first is not None and first < node.lineno


def _stated(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Calls and dicts with such an argument, and its value: a dict may be unfolded in a call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) == CALL and not _is_other(node.func):
            yield from ((node, one.value) for one in node.keywords if one.arg == ARGUMENT)
        elif isinstance(node, ast.Dict):
            named = zip(node.keys, node.values, strict=True)
            yield from ((node, value) for key, value in named if getattr(key, "value", "") == ARGUMENT)


def _is_other(method: ast.expr) -> bool:
    """Whether it is a method of what has no weights: AutoTokenizer.from_pretrained."""
    return OTHERS.search(last_name(getattr(method, "value", None))) is not None


def _places(value: object) -> bool:
    """Whether it is the name of a way to place a model."""
    return isinstance(value, str) and value.lower() not in ("", "none", "null")


def _reached(tree: ast.Module) -> set[ast.AST]:
    """What runs whatever is asked for: the lines of the module in no condition or loop, and of functions that such
    lines call.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reached, waiting, seen = set[ast.AST](), [tree.body], set[str]()
    while waiting:
        plain = set(_plain(waiting.pop()))
        reached |= plain
        names = {last_name(node.func) for node in plain if isinstance(node, ast.Call)} & functions.keys() - seen
        seen |= names
        waiting += [functions[name].body for name in names]
    return reached


def _plain(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """What is in no condition, loop or function; of `if __name__ == "__main__"` all."""
    for node in body:
        if isinstance(node, ast.With) or (isinstance(node, ast.If) and _is_main(node.test)):
            yield from _plain(node.body)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
            yield from ast.walk(node)


def _is_main(test: ast.expr) -> bool:
    return any(getattr(node, "id", "") == "__name__" for node in ast.walk(test))
