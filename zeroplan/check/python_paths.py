"""Paths and texts that a Python file puts together of several: Path(...) / "ds.json", os.path.join, f"...", +."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable

from zeroplan.check.python_nodes import last_name

HERE = ("__file__", "getcwd", "cwd")
"""What the folder of a file is made of, which the rest of a path is seen from."""
SAME = ("str", "Path", "PurePath", "fspath", "abspath", "realpath", "normpath", "expanduser", "as_posix", "resolve",
        "absolute")  # fmt: skip
"""Calls that leave a path what it is."""
LONGEST = 1_000
"""Letters of a path."""


def is_put_together(node: ast.expr) -> bool:
    """Whether it is one of these."""
    return _parts(node) is not None or isinstance(node, ast.JoinedStr)


def put_together(node: ast.expr, text: Callable[[ast.expr], str]) -> str:
    """A path, or a text, of its parts; "" for anything else and where `text` has none of a part."""
    if isinstance(node, ast.JoinedStr):
        return _joined(
            [value.value if isinstance(value, ast.FormattedValue) else value for value in node.values], "", text
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _joined([node.left, node.right], "", text)
    parts = _parts(node)
    if parts is None:
        return ""
    whole = _joined(parts, "/", text)
    return posixpath.normpath(whole) if whole else ""


def _joined(parts: list[ast.expr], between: str, text: Callable[[ast.expr], str]) -> str:
    texts = [text(part) for part in parts]
    whole = between.join(texts)
    return whole if all(texts) and len(whole) <= LONGEST else ""


def _parts(node: ast.expr) -> list[ast.expr] | None:
    """What stands between the strokes of a path: a point for the folder of the file itself."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [node.left, node.right]
    if not isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        return None
    called = node.func if isinstance(node, ast.Call) else None
    name = last_name(called)
    if isinstance(node, ast.Call) and name in ("join", "joinpath") and node.args:
        first = [] if name == "join" else [called.value]  # type: ignore[union-attr]
        return [*first, *node.args] if len(node.args) + len(first) > 1 else None
    if _is_here(node):
        return [ast.Constant(".")]
    if isinstance(node, ast.Call) and name in SAME:
        return list(node.args) or ([called.value] if isinstance(called, ast.Attribute) else None)
    return None


def _is_here(node: ast.expr) -> bool:
    """The folder of the file, or one above it, which a file that is named is looked for in too."""
    below = [one for one in ast.walk(node) if isinstance(one, ast.BinOp | ast.Constant) and not _is_number(one)]
    names = {last_name(one) for one in ast.walk(node)}
    return not below and not names.isdisjoint(HERE)


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)
