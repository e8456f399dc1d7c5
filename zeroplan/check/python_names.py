"""What names of a Python file stand for: values that one line sets, defaults of options and classes, files that are
read as JSON.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from zeroplan.check.inner import OWN_NAME
from zeroplan.check.kind import JSON
from zeroplan.check.python_nodes import last_name
from zeroplan.check.python_paths import is_put_together

CHANGING = ("update", "setdefault", "pop", "clear")
ENVIRONMENT = ("get", "getenv", "env", "get_env")
"""Calls of a variable's name and what stands for it where the environment has none."""
WRITES = re.compile("save|dump|write|export")
OPENS = ("open", "Path")
"""Calls whose first argument is the name of a file."""


class Default(NamedTuple):
    """The name of a file, and the line that has it."""

    text: str
    line: int


class Names(NamedTuple):
    """What a reader of the file needs of them."""

    constants: dict[str, ast.expr]
    """Numbers, texts, switches and dicts, by the name that one line alone sets to them."""
    defaults: dict[str, Default]
    """Names of files that options of the command line, and attributes of classes, have where nobody sets another."""
    loaded: dict[str, ast.expr]
    """The files that `json.load` makes a name of, where no line changes what was read."""
    changed: dict[str, list[tuple[int, str]]]
    """Where dicts are changed after they were written out: lines, by the name of the dict."""


def names_of(tree: ast.Module) -> Names:
    nodes = list(ast.walk(tree))
    changed = _changed(nodes)
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    stored.update(node.arg for node in nodes if isinstance(node, ast.arg))
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    stored.update(one.asname or one.name for node in imports for one in node.names)
    once = {name for name, times in stored.items() if times == 1} - changed.keys()
    return Names(_constants(nodes, once), _defaults(nodes), _loaded(nodes, once), changed)


def _constants(nodes: list[ast.AST], once: Container[str]) -> dict[str, ast.expr]:
    """`once`: names that one line alone sets, and none changes."""
    return {name: value for name, value in _assigned(nodes) if name in once and _is_plain(value)}


def _is_plain(value: ast.expr) -> bool:
    is_scalar = isinstance(value, ast.Constant | ast.UnaryOp | ast.BinOp)
    return is_scalar or pairs(value) is not None or is_put_together(value)


def _assigned(nodes: list[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(target, ast.Name):
            assert isinstance(node, ast.Assign)
            yield target.id, node.value


def _defaults(nodes: list[ast.AST]) -> dict[str, Default]:
    """Defaults of add_argument("--deepspeed_config", default=...), of `deepspeed_config: str = ...` in a class or the
    module, of self.deepspeed_config = ..., {"deepspeed": ...}, and build(deepspeed_config=...).
    """
    defaults: dict[str, Default] = {}
    for node in nodes:
        if isinstance(node, ast.Call):
            stated = _of_option(node) + [one for one in _of_keywords(node) if one[0] not in defaults]
        else:
            stated = _of_class(node) + _of_attribute(node) + _of_dict(node)
        defaults |= {name: default for name, default in stated if default.text.lower().endswith(JSON)}
    return defaults


def _of_option(call: ast.Call) -> list[tuple[str, Default]]:
    if getattr(call.func, "attr", "") != "add_argument" or not call.args:
        return []
    option, default = _text(call.args[0]), _text(_argument(call, "default"))
    return [(option.lstrip("-").replace("-", "_"), Default(default, call.lineno))]


def _of_keywords(call: ast.Call) -> list[tuple[str, Default]]:
    """Names of files in arguments, as of build(deepspeed_config="ds.json"), also where a condition leaves it out."""
    if WRITES.search(last_name(call.func)):
        return []
    stated = ((one.arg, one.value.body if isinstance(one.value, ast.IfExp) else one.value) for one in call.keywords)
    return [(name, Default(_text(value), value.lineno)) for name, value in stated
            if name is not None and OWN_NAME.fullmatch(name)]  # fmt: skip


def _of_class(node: ast.AST) -> list[tuple[str, Default]]:
    stated: list[tuple[str, Default]] = []
    for line in node.body if isinstance(node, ast.ClassDef | ast.Module) else ():
        targets = getattr(line, "targets", [getattr(line, "target", None)])
        value = getattr(line, "value", None)
        default = _argument(value, "default") if isinstance(value, ast.Call) else value
        several = [target.id for target in targets if isinstance(target, ast.Name)]
        stated += [(name, Default(_text(default), line.lineno)) for name in several]
    return stated


def _of_attribute(node: ast.AST) -> list[tuple[str, Default]]:
    targets = node.targets if isinstance(node, ast.Assign) else []
    several = [one for one in targets if isinstance(one, ast.Attribute)]
    return [(one.attr, Default(_text(getattr(node, "value", None)), one.lineno)) for one in several]


def _of_dict(node: ast.AST) -> list[tuple[str, Default]]:
    """Of {"deepspeed": "ds.json"}, as hyperparameters of a job have it."""
    items = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return [(_text(name), Default(_text(value), value.lineno)) for name, value in items if name is not None]


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((one.value for one in call.keywords if one.arg == name), None)


def without_environment(node: ast.AST | None) -> ast.AST | None:
    """What a call has where the environment has no such variable; else the node itself."""
    name = last_name(node.func) if isinstance(node, ast.Call) else ""
    if not isinstance(node, ast.Call) or name not in ENVIRONMENT:
        return node
    return node.args[1] if len(node.args) > 1 else None


def _text(node: ast.AST | None) -> str:
    """A text, or what a call of a variable's name has where the environment has none: os.environ.get(NAME, text)."""
    node = without_environment(node)
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def _loaded(nodes: list[ast.AST], once: Container[str]) -> dict[str, ast.expr]:
    """Of json.load(open(name)), of the file of a `with` around it, and of json.loads(Path(name).read_text())."""
    loaded = {name: file for name, value in _assigned(nodes) if (file := _file(value, {})) is not None}
    for node in nodes:
        if isinstance(node, ast.With | ast.AsyncWith):
            opened = {one.optional_vars.id: one.context_expr for one in node.items
                      if isinstance(one.optional_vars, ast.Name)}  # fmt: skip
            inside = _assigned([below for line in node.body for below in ast.walk(line)])
            loaded |= {name: file for name, value in inside if (file := _file(value, opened)) is not None}
    return {name: file for name, file in loaded.items() if name in once}


def _file(value: ast.expr, opened: dict[str, ast.expr]) -> ast.expr | None:
    """The name of the file that json.load, or json.loads, has its text of."""
    name = getattr(value.func, "attr", "") if isinstance(value, ast.Call) else ""
    if name not in ("load", "loads") or getattr(value.func.value, "id", "") != "json" or not value.args:  # type: ignore[attr-defined]
        return None
    source = value.args[0]  # type: ignore[attr-defined]
    if isinstance(source, ast.Call) and getattr(source.func, "attr", "") in ("read", "read_text"):
        source = source.func.value  # type: ignore[attr-defined]
    source = opened.get(getattr(source, "id", ""), source)
    if not isinstance(source, ast.Call):
        return None
    called = source.func
    if getattr(called, "id", "") in OPENS and source.args:
        return source.args[0]
    return called.value if isinstance(called, ast.Attribute) and called.attr == "open" and not source.args else None


def imported_files(tree: ast.Module) -> list[str]:
    """Files of a project that a file may import, as seen from its folder."""
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or node.level):
            above = "../" * max(0, node.level - 1)
            modules = [node.module] if node.module else [one.name for one in node.names]
            names |= dict.fromkeys(f"{above}{module.replace('.', '/')}.py" for module in modules)
        elif isinstance(node, ast.Import):
            names |= dict.fromkeys(f"{one.name.replace('.', '/')}.py" for one in node.names)
    return list(names)


def _changed(nodes: list[ast.AST]) -> dict[str, list[tuple[int, str]]]:
    changed: dict[str, list[tuple[int, str]]] = {}
    for node in nodes:
        target: ast.AST | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            target = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            target = node.func.value
        while isinstance(target, ast.Subscript):
            target = target.value
        name = getattr(target, "id", getattr(target, "attr", None))
        if name is not None:
            changed.setdefault(name, []).append((node.lineno, f"what line {node.lineno} sets"))  # type: ignore[attr-defined]
    return changed


def pairs(node: ast.AST) -> list[tuple[Any, ast.AST, ast.expr]] | None:
    """Names, their nodes and values of {...} or dict(...); None for anything else."""
    if isinstance(node, ast.Dict):
        return [(one.value if isinstance(one, ast.Constant) else None, one or value, value)
                for one, value in zip(node.keys, node.values, strict=True)]  # fmt: skip
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
        return [(one.arg, one, one.value) for one in node.keywords]
    return None
