"""What a few commands of a shell write, as far as their words alone decide it: paths, sums and counts."""

from __future__ import annotations

import ast
import operator
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

NAMED = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\}?")
SUM = re.compile(r"[\d\s()*/%+-]+")
OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: lambda left, right: int(Fraction(left, right)),
    ast.Mod: lambda left, right: left - right * int(Fraction(left, right)),
}  # fmt: skip
"""What bash works out: its division leaves out what is behind the point."""
LONGEST, MOST = 200, 10**15
UNSTATED = "?"
FIELDS = re.compile(r"\{\s*print\s+NF\s*;?\s*\}")
ESCAPES = {"\\n": "\n", "\\t": "\t", "[:space:]": " "}


class SimpleCommand(NamedTuple):
    """One command of several that follow one another, as bash's manual calls it."""

    joined: str
    """What stands between it and the one before: "|", "&&" and the like."""
    words: list[str | None]


def output(commands: Sequence[SimpleCommand], folder: str) -> str | None:
    """What the last of them writes, without the end of its line; None where the words do not tell. `folder`: where they
    are started.
    """
    written: str | None = None
    for joined, stated in commands:
        words = _plain(stated)
        if words is None or not words:
            return None
        name, arguments = words[0], words[1:]
        options = [word for word in arguments if word.startswith("-")]
        operands = [word for word in arguments if not word.startswith("-")]
        if joined == "|" and written is not None:
            written = _filtered(name, options, operands, written)
        elif name == "cd" and len(operands) == 1:
            folder, written = posixpath.join(folder, operands[0]), ""
        elif name == "pwd":
            written = folder
        elif name == "expr":
            written = _text(worked_out(" ".join(words[1:]), lambda _name: None))
        elif name in WRITES and operands:
            written = WRITES[name](operands)
        else:
            return None
        if written is None:
            return None
    return written


def _plain(stated: Sequence[str | None]) -> list[str] | None:
    words = [word for word in stated if word is not None]
    return words if len(words) == len(stated) else None


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _based(operands: Sequence[str]) -> str:
    """`basename PATH [ENDING]`."""
    name = posixpath.basename(operands[0].rstrip("/"))
    return name.removesuffix(operands[1]) if len(operands) > 1 else name


WRITES: dict[str, Callable[[Sequence[str]], str]] = {
    "dirname": lambda operands: posixpath.dirname(operands[0].rstrip("/")) or ".",
    "basename": _based,
    "realpath": lambda operands: operands[0],
    "readlink": lambda operands: operands[0],
    "echo": " ".join,
}
"""Commands whose operands alone decide what they write."""


def _filtered(name: str, options: Sequence[str], operands: Sequence[str], text: str) -> str | None:
    """What `tr A B`, `wc -l`, `wc -w` and `awk -F, '{print NF}'` make of a text."""
    if name == "tr" and len(operands) == 2 and not options:
        before, after = (ESCAPES.get(one, one) for one in operands)
        return text.replace(before, after) if len(before) == len(after) == 1 else None
    if name == "wc" and list(options) == ["-l"]:
        return str(text.count("\n") + 1)  # echo ends its last line
    if name == "wc" and list(options) == ["-w"]:
        return str(len(text.split()))
    if name == "awk" and operands and FIELDS.fullmatch(operands[-1]):
        mark = next((one[2:] for one in options if one.startswith("-F")), None) or operands[0]
        return str(len(text.split(mark))) if mark != operands[-1] or len(operands) > 1 else None
    return None


def worked_out(text: str, value: Callable[[str], str | None]) -> int | None:
    """Whole numbers and names of such, with brackets and + - * / %; None for anything else, and for a number that is
    longer than a script means. `value`: what a name stands for.
    """
    named = NAMED.sub(lambda match: _value(match, value), text)
    if len(named) > LONGEST or not SUM.fullmatch(named) or "**" in named or "//" in named:
        return None
    try:
        return _result(ast.parse(named.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError):
        return None


def _value(match: re.Match[str], value: Callable[[str], str | None]) -> str:
    """A name's text behind $; the number that it is, where it stands alone."""
    text = value(match[1]) or UNSTATED
    return text if match[0].startswith("$") or is_number(text) else UNSTATED


def _result(node: ast.AST) -> int | None:
    """What a sum is, each part of it as bash has it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value if is_number(str(node.value)) else None
    if isinstance(node, ast.UnaryOp):
        number = _result(node.operand)
        return number if number is None or isinstance(node.op, ast.UAdd) else -number
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _result(node.left), _result(node.right)
    if left is None or right is None:
        return None
    number = OPERATORS[type(node.op)](left, right)
    return number if abs(number) < MOST else None


def is_number(text: str) -> bool:
    """Whether it is a whole number of a size that a script means."""
    return re.fullmatch("[0-9]{1,12}", text) is not None
