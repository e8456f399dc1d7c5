"""What a few commands of a shell write, as far as their words alone decide it: paths, sums and counts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

OPERANDS = re.compile(r"\s*(?:(\d{1,12})|\$?\{?([A-Za-z_]\w*)\}?|([*/%+-]))\s*")
"""A number, a name or an operator of what bash works out."""
FIELDS = re.compile(r"\{\s*print\s+NF\s*;?\s*\}")
ESCAPES = {"\\n": "\n", "\\t": "\t", "[:space:]": " "}
TO_NOWHERE = ("2", "/dev/null", "1")
"""What is left of `>/dev/null 2>&1` as words."""


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
        name, arguments = words[0], [word for word in words[1:] if word not in TO_NOWHERE]
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
    """Whole numbers and names of such, with * / % before + and -; None for anything else. `value`: what a name stands
    for.
    """
    words: list[int | str] = []
    at = 0
    while at < len(text):
        match = OPERANDS.match(text, at)
        stated = match and (match[1] or match[3] or value(match[2]))
        if not match or not stated or not (match[3] or is_number(stated)) or bool(match[3]) != len(words) % 2:
            return None
        words.append(stated if match[3] else int(stated))
        at = match.end()
    return _sum(words) if len(words) % 2 else None


def _sum(words: list[int | str]) -> int | None:
    """Numbers with an operator between each two; None where one is divided by nothing."""
    total, term, sign = 0, int(words[0]), 1
    for operator, word in zip(words[1::2], words[2::2], strict=True):
        number = int(word)
        if operator in ("/", "%") and not number:
            return None
        if operator == "*":
            term *= number
        elif operator == "/":
            term //= number
        elif operator == "%":
            term %= number
        else:
            total, term, sign = total + sign * term, number, 1 if operator == "+" else -1
    return total + sign * term


def is_number(text: str) -> bool:
    """Whether it is a whole number of a size that a script means."""
    return re.fullmatch("[0-9]{1,12}", text) is not None
