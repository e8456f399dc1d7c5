"""No file imports another that imports it, on whatever way, on the first line or inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import zeroplan

ROOT = Path(zeroplan.__file__).parent


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a module imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            inside = [f"{node.module}.{one.name}" for one in node.names]
            yield from (name if name in known else node.module for name in inside)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in known)


def test_no_import_circle():
    """`TopologicalSorter` raises `CycleError` with the files of one."""
    known = {".".join(("zeroplan", *file.relative_to(ROOT).with_suffix("").parts)): file for file in ROOT.rglob("*.py")}
    known = {name.removesuffix(".__init__"): file for name, file in known.items()}
    graph = {name: set(imported(ast.parse(file.read_text()), known)) - {name} for name, file in known.items()}
    assert len(tuple(TopologicalSorter(graph).static_order())) == len(known)
