"""Parts of a Python file's syntax tree, and that of a text where it is Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def parsed(text: str) -> ast.Module | None:
    """None for a text that is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def last_name(node: ast.AST | None) -> str:
    """The last part of a name: PipelineModule, of deepspeed.pipe.PipelineModule; "" for what is none."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def modules_of(tree: ast.Module) -> dict[str, str]:
    """Modules that names of a file are imported from, but for names that it gives to its own."""
    nodes = list(ast.walk(tree))
    modules = {one.asname or one.name: node.module or "" for node in nodes
               if isinstance(node, ast.ImportFrom) and not node.level for one in node.names}  # fmt: skip
    modules |= {one.asname or one.name.partition(".")[0]: one.name
                for node in nodes if isinstance(node, ast.Import) for one in node.names}  # fmt: skip
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    return {name: module for name, module in modules.items() if name not in own}


def first_name(node: ast.expr) -> str:
    """The name that an expression begins with: pl, of pl.strategies.DeepSpeedStrategy."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return str(getattr(node, "id", ""))


def outside_branches(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that no condition decides."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, ast.If | ast.IfExp | ast.Try | ast.Match):
            left += ast.iter_child_nodes(node)
