"""Parts of a Python file's syntax tree, and that of a text where it is Python."""

from __future__ import annotations

import ast


def parsed(text: str) -> ast.Module | None:
    """None for a text that is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def last_name(node: ast.AST | None) -> str:
    """The last part of a name: PipelineModule, of deepspeed.pipe.PipelineModule; "" for what is none."""
    return str(getattr(node, "attr", getattr(node, "id", "")))
