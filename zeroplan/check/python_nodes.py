"""Parts of a Python file's syntax tree, and that of a text where it is Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

BRANCHES, SCOPES = (ast.If, ast.IfExp, ast.Try, ast.Match), (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
ASKS = re.compile("version|hasattr|signature|parameters|is_.*available|TRANSFORMERS", re.IGNORECASE)
"""What asks for a release, or for what it has."""


@lru_cache(maxsize=16)
def tree_of(text: str) -> ast.Module:
    """The tree of a text, which nobody changes. Raises what `ast.parse` does."""
    return ast.parse(text)


def parsed(text: str) -> ast.Module | None:
    """None for a text that is no Python."""
    try:
        return tree_of(text)
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


def imported_from(tree: ast.Module, package: str) -> set[str]:
    """Names that a package alone is the origin of: no other import or class of the file has them."""
    modules = modules_of(tree)
    origins: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                origins.setdefault(one.asname or one.name, set()).add((node.module or "").partition(".")[0])
    named = {name for name, module in modules.items() if module.partition(".")[0] == package}
    return {name for name in named if origins.get(name, {package}) == {package}}


def outside_branches(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that no condition decides, and no function but the one that is given, if it is one."""
    left = [*ast.iter_child_nodes(tree)]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (*BRANCHES, *SCOPES)) or _is_main(node):
            left += ast.iter_child_nodes(node)


def without_version_checks(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes but for those that a file leaves out by itself under some releases: in a try, or behind a comparison."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        asks = isinstance(node, ast.If | ast.IfExp) and ASKS.search(ast.dump(node.test)) is not None
        if not asks and not isinstance(node, ast.Try):
            left += ast.iter_child_nodes(node)


def _is_main(node: ast.AST) -> bool:
    """Whether it is what a script runs: if __name__ == "__main__"."""
    return isinstance(node, ast.If) and "'__name__'" in ast.dump(node.test)
