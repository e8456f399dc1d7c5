"""Configs that stand in Python files as dict literals; nothing of the file runs."""

from __future__ import annotations

import ast
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from zeroplan.check.arguments import DEFAULTS, Arguments
from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.inner import OWN_NAME
from zeroplan.check.interpolated import stand_in
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import OWN_KEYS, PYTHON, is_config
from zeroplan.check.python_calls import ConfigCall, config_calls, has_reference, tool_of_call
from zeroplan.check.python_names import (
    CHANGING,
    Names,
    imported_files,
    names_of,
    pairs,
    without_environment,
)
from zeroplan.check.python_nodes import imported_from, last_name, tree_of, without_version_checks
from zeroplan.check.python_paths import put_together
from zeroplan.check.python_strategies import PLUGIN, STRATEGY
from zeroplan.check.rules.calls import Refused, refused_calls
from zeroplan.check.rules.trainer_calls import refused_calls_of_releases
from zeroplan.check.setting import ANY, LIGHTNING, TRAINER
from zeroplan.deepspeed.keys import key
from zeroplan.errors import SpecError

NAMED = re.compile(r"(?:^|_)(?:ds|deepspeed)_?(?:config|cfg|params|dict)|^(?:deepspeed|config_params)$", re.IGNORECASE)
"""How variables and arguments are called that hold a config."""
WORDS = (
    "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", STRATEGY, PLUGIN, "deepspeed_stage_",
)  # fmt: skip
"""One of them is in every file that holds a config."""
HAVE_ARGUMENTS, OF_TENSORFLOW = ("transformers", "trl"), ("TFTrainingArguments",)
USUAL = "DEFAULT_"
"""Before the name of a constant that options have as their default."""
BLANKED = re.compile(r"[^\r\n]")
LARGEST_POWER, DEEPEST, LARGEST = 64, 6, 10**100
ENDS = re.compile(r"(\r\n|\r|\n)")
"""What ends a line of Python."""
ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow,
}  # fmt: skip


class Use(NamedTuple):
    """Who reads a config."""

    reader: str
    arguments: Arguments | None = None
    """TrainingArguments, where all that stand beside it are literals."""
    stated: Arguments | None = None
    """The same with null for what is no literal: of them the names alone are known."""
    pipeline: bool = False
    """Whether its model is a PipelineModule."""
    has_optimizer: bool = False
    """Whether an optimizer is given beside it."""


class Literal(NamedTuple):
    """A config, and what of it other code decides."""

    document: Document
    unknown: tuple[tuple[int, str], ...]
    """Lines and paths of keys whose values are no literals."""
    use: Use | None = None
    """Who reads it, by the call that takes it or its name; None where no such call is there."""
    shares: tuple[tuple[int, int, str], ...] = ()
    """Where a fraction of what other code decides stands, and the key that takes a whole number."""
    call: str = ""
    """The call of whose other arguments it is built; "" for a dict that stands there."""


class PythonConfigs(NamedTuple):
    """The configs of a file."""

    literals: list[Literal]
    named: list[tuple[int, str, Use]]
    """Lines of calls that take the name of a file, with that name."""
    texts: list[str]
    """Configs in JSON that stand in texts, each in a file of blanks, so that its place is that in this file."""
    refused: list[tuple[int, Refused]]
    """What a call stops at, with the offset where it stands."""
    others: list[Use]
    """Uses of a config that is neither, which another file may have."""
    imports: list[str]
    """Files that it may import."""


class _UnknownError(Exception):
    """A value that other code decides."""


NOT_WORKED_OUT = (_UnknownError, ArithmeticError, TypeError, ValueError, RecursionError)


def is_python(name: str, text: str) -> bool:
    first = text[: text.find("\n")] if text.startswith("#!") else ""
    return name.lower().endswith(PYTHON) or "python" in first


def python_tree(name: str, text: str) -> ast.Module:
    """Raises `SpecError` for what is no Python."""
    try:
        return tree_of(text)
    except SyntaxError as error:
        raise SpecError(f"{name}:{error.lineno or 1}", f"text that is not Python ({error.msg})", "Python") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise SpecError(name, "text that is not Python", "Python") from error


def python_configs(name: str, text: str, *, is_imported: bool = False) -> PythonConfigs:
    """The configs of a file in its order. `is_imported`: whether constants of it may be for other files than the one
    that is looked at. Raises `SpecError` for what is no Python.
    """
    tree = python_tree(name, text)
    names, parts = names_of(tree), _parts(tree)
    reader = _Reader(name, text, names)
    calls = config_calls(tree, names.constants)
    taken = Counter((call.reader, ast.dump(call.value)) for call in calls)
    uses = [(call, reader.use(call, alone=taken[call.reader, ast.dump(call.value)] == 1)) for call in calls]
    by_value: dict[ast.expr | str, Use] = {}
    for call, use in uses[::-1]:  # so that the first of their order counts
        by_value[call.value.id if isinstance(call.value, ast.Name) else call.value] = use
    dicts = [(node, named, by_value.get(node) or by_value.get(named)) for node, named in _dicts(tree, "")]
    several = [
        reader.literal(node, (*_rest(node, parts), *names.changed.get(named, ())))._replace(use=use)
        for node, named, use in dicts if use is not None or reader.is_one(node, named)
    ]  # fmt: skip
    several += [reader.literal(call.value, ())._replace(use=use, call=call.built_by)
                for call, use in uses if call.built_by]  # fmt: skip
    paths = [(call.call.lineno, path, use) for call, use in uses if (path := reader.text_of(call.value))]
    if not several and not paths:  # what the program does with it is its own
        usual = "" if is_imported else USUAL
        own = [default for name, default in names.defaults.items() if OWN_NAME.fullmatch(name.removeprefix(usual))]
        only = uses[0][1] if len(uses) == 1 and uses[0][1].reader == LIGHTNING else Use(ANY)
        paths = [(default.line, default.text, only) for default in own]
    refused = [(reader.start(one.node), one) for one in refused_calls(tree)]
    used = [one.use for one in several] + [use for _line, _path, use in paths]
    others = [use for _call, use in uses if not any(use is one for one in used)]
    several.sort(key=lambda one: one.document.root.start)
    return PythonConfigs(several, paths, _json_texts(tree, reader), refused, others, imported_files(tree))


def arguments_of_calls(name: str, text: str) -> list[Arguments]:
    """The names of arguments in each call of a class of transformers' or TRL's that has them. Raises `SpecError`."""
    tree = python_tree(name, text)
    reader = _Reader(name, text, names_of(tree))
    imported = set().union(*(imported_from(tree, one) for one in HAVE_ARGUMENTS))
    calls = (node for node in without_version_checks(tree) if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Name) and node.func.id in imported and node.func.id not in OF_TENSORFLOW)
    tools = ((call, tool_of_call(last_name(call.func))) for call in calls)
    uses = (reader.use(ConfigCall(TRAINER, call, call, tool), alone=True) for call, tool in tools if tool is not None)
    return [use.stated for use in uses if use.stated is not None]


def refused_by_release(
    name: str, text: str, deepspeed: str, transformers: str | None, accelerate: str | None
) -> list[tuple[int, Refused]]:  # fmt: skip
    """What releases of these packages stop at in calls, by offsets. Raises `SpecError`."""
    tree = python_tree(name, text)
    reader = _Reader(name, text, Names({}, {}, {}, {}))
    refused = refused_calls_of_releases(tree, deepspeed, transformers, accelerate)
    return [(reader.start(one.node), one) for one in refused]


def literal_of(document: Document, node: ast.expr, call: str) -> Literal:
    """The config of a dict that another reader built of a file's values, each in its place."""
    return _Reader(document.name, document.text, Names({}, {}, {}, {})).literal(node, ())._replace(call=call)


def _json_texts(tree: ast.Module, reader: _Reader) -> list[str]:
    """Of texts that a file may write: ds_config = '''{"zero_optimization": ...}'''."""
    texts: list[str] = []
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # for who reads the code
    for node in ast.walk(tree):
        stated = node.value if isinstance(node, ast.Constant) and node not in alone else None
        if not isinstance(stated, str) or not any(f'"{word}"' in stated for word in OWN_KEYS):
            continue
        assert isinstance(node, ast.Constant)
        start, end = reader.span(node)
        first, last = reader.text.find("{", start, end), reader.text.rfind("}", start, end) + 1
        inside = reader.text[first:last]
        try:
            content = read_json(reader.name, inside)
        except NotReadableError:
            continue
        if first >= 0 and is_config(content.config):
            texts.append(BLANKED.sub(" ", reader.text[:first]) + inside)
    return texts


def _parts(tree: ast.Module) -> set[ast.expr]:
    """What is put into another dict, which has the rest: update({...}), and |= {...}."""
    parts: set[ast.expr] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign):
            parts.add(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            parts.update(node.args)
    return parts


def _rest(node: ast.expr, parts: set[ast.expr]) -> list[tuple[int, str]]:
    """What other code decides of a dict that is such a part."""
    return [(node.lineno, "the rest of what it is put into")] if node in parts else []


def _dicts(node: ast.AST, named: str) -> Iterator[tuple[ast.expr, str]]:
    """The outermost dicts below a node, each with the name that it is given to."""
    if pairs(node) is not None:
        assert isinstance(node, ast.expr)
        yield node, named
        return
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        yield from _dicts(node.value, getattr(target, "id", getattr(target, "attr", "")))
        return
    if isinstance(node, ast.keyword):
        yield from _dicts(node.value, node.arg or "")
        return
    for child in ast.iter_child_nodes(node):
        yield from _dicts(child, "")


def _is_share(node: ast.expr) -> bool:
    """Whether it is a fraction of something, as 0.9 * hidden * hidden is one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_share(node.left) or _is_share(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and not node.value.is_integer()


class _Reader:
    """Nodes of the tree of a config, built from those of Python's."""

    def __init__(self, name: str, text: str, names: Names) -> None:
        self.name, self.text, self.names = name, text, names
        parts = ENDS.split(text)
        self.lines = parts[::2]
        self.starts = [0]
        for line, end in zip(self.lines, [*parts[1::2], ""], strict=True):
            self.starts.append(self.starts[-1] + len(line) + len(end))
        self.texts: dict[int, str] = {}
        """What expressions stand for, by their ids."""
        self.unknown: list[tuple[int, str]] = []
        self.shares: list[tuple[int, int, str]] = []

    def is_one(self, node: ast.expr, named: str) -> bool:
        """By its keys; by the name that it is given to where all of them are DeepSpeed's."""
        names = [name for name, _, _ in pairs(node) or () if isinstance(name, str)]
        sections: dict[str, Any] = {name: {} if pairs(value) is not None else None
                                    for name, _, value in pairs(node) or () if isinstance(name, str)}  # fmt: skip
        ours = [name for name in names if key(name)]
        if NAMED.search(named) is not None:
            return is_config(sections) or (bool(ours) and len(ours) == len(names))
        decided = {name for name, _, value in pairs(node) or () if isinstance(value, ast.Name)}  # by another line
        own = "train_micro_batch_size_per_gpu" in names or sections.get("zero_optimization") is not None
        own = own or "zero_optimization" in decided
        return own and is_config(sections) and 2 * len(ours) > len(names)

    def text_of(self, node: ast.expr) -> str:
        """A text that stands there, or that a name of the module or the default of an argument stands for, and the one
        of a condition that has no other; "" for anything else.
        """
        if id(node) not in self.texts:
            self.texts[id(node)] = ""  # of a name that stands for itself
            with suppress(RecursionError):
                self.texts[id(node)] = self._text_of(node)
        return self.texts[id(node)]

    def _text_of(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            node = self.names.loaded.get(node.id, node)
        if isinstance(node, ast.Name):
            node = self.names.constants.get(node.id, node)
        if isinstance(node, ast.IfExp) and isinstance(node.orelse, ast.Constant) and node.orelse.value is None:
            return self.text_of(node.body)
        if text := put_together(node, self.text_of):
            return text
        if isinstance(node, ast.Attribute):
            default = self.names.defaults.get(node.attr)
            return "" if default is None else default.text
        if isinstance(usual := without_environment(node), ast.expr) and usual is not node:
            return self.text_of(usual)
        try:
            value = self._scalar(node)
        except NOT_WORKED_OUT:
            return ""
        return value if isinstance(value, str) else ""

    def use(self, call: ConfigCall, *, alone: bool) -> Use:
        """Who reads the config of a call, and its other arguments, where no other call of that kind takes it too."""
        if call.reader != TRAINER or not alone:
            return Use(call.reader, pipeline=call.pipeline, has_optimizer=call.has_optimizer)
        several = [(one.arg, *self.span(one.value), self._known(one.value)) for one in call.call.keywords]
        members = [Member(name, start, end, node) for name, start, end, node in several if name is not None and node]
        names = [Member(name, start, end, node or ValueNode(start, end)) for name, start, end, node in several if name]
        is_whole = not any(name is None or (name in DEFAULTS and node is None) for name, _start, _end, node in several)
        roots = (ValueNode(*self.span(call.call), members=each) for each in (members, names))
        reference = has_reference(self.text)
        whole, stated = (Arguments(Document(self.name, self.text, root), call.tool, has_reference=reference)
                         for root in roots)  # fmt: skip
        return Use(call.reader, whole if is_whole else None, stated)

    def _known(self, node: ast.expr) -> ValueNode | None:
        try:
            return ValueNode(*self.span(node), scalar=self._scalar(node))
        except NOT_WORKED_OUT:
            return None

    def literal(self, node: ast.expr, changed: Iterable[tuple[int, str]]) -> Literal:
        """The config of a dict; `changed`: what other lines change of it."""
        self.unknown, self.shares = list(changed), []
        root = self._object(node, "")
        return Literal(Document(self.name, self.text, root), tuple(self.unknown), shares=tuple(self.shares))

    def _object(self, node: ast.expr, path: str) -> ValueNode:
        members: dict[str, Member] = {}
        for name, place, value in pairs(node) or ():
            if not isinstance(name, str):
                self.unknown.append((value.lineno, f"{path}*"))
                continue
            inner = self._value(value, f"{path}{name}")
            if inner is not None:
                start = self._offset(place.lineno, place.col_offset)  # type: ignore[attr-defined]
                members[name] = Member(name, start, start + len(name) + 2, inner)
        return ValueNode(*self.span(node), members=list(members.values()))

    def _value(self, node: ast.expr, path: str) -> ValueNode | None:
        """None for what other code decides; where the Trainer would fill it, "auto" stands for it."""
        if isinstance(node, ast.Name) and path.count(".") < DEEPEST:  # a dict that names itself has no end
            node = self.names.constants.get(node.id, node)
        if pairs(node) is not None:
            return self._object(node, f"{path}.")
        if isinstance(node, ast.List | ast.Tuple):
            items = [self._value(one, path) for one in node.elts]
            return None if None in items else ValueNode(*self.span(node), items=[one for one in items if one])
        try:
            return ValueNode(*self.span(node), scalar=self._scalar(node))
        except NOT_WORKED_OUT:
            self.unknown.append((node.lineno, path))
            known = key(path)
            if known is not None and known.kind == "integer" and _is_share(node):
                self.shares.append((*self.span(node), path))
        return stand_in(*self.span(node), path)

    def _scalar(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, bool | int | float | str)):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._scalar(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right = self._scalar(node.left), self._scalar(node.right)
            is_too_much = isinstance(node.op, ast.Pow) and not abs(right) <= LARGEST_POWER
            if is_too_much or isinstance(left, str) or isinstance(right, str):
                raise _UnknownError
            result = ARITHMETIC[type(node.op)](left, right)
            if isinstance(result, complex) or (isinstance(result, int) and abs(result) >= LARGEST):
                raise _UnknownError
            return result
        if isinstance(node, ast.Name) and node.id in self.names.constants:
            return self._scalar(self.names.constants[node.id])
        raise _UnknownError

    def start(self, node: ast.expr) -> int:
        """The offset at which a part of the file begins."""
        return self.span(node)[0]

    def span(self, node: ast.expr) -> tuple[int, int]:
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return self._offset(node.lineno, node.col_offset), end

    def _offset(self, line: int, column: int) -> int:
        """The offset of a place that is a line, from 1, and a column in bytes of UTF-8."""
        before = self.lines[line - 1].encode("utf-8")[:column]
        return self.starts[line - 1] + len(before.decode("utf-8", errors="ignore"))
