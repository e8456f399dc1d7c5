"""Branches of a shell script that its own variables decide: if [ "$STRATEGY" = deepspeed ] below STRATEGY=mac."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from zeroplan.check.shell_output import is_number

OPENS, CLOSES = ("[", "[[", "test"), ("]", "]]")
EQUAL, OTHER = ("=", "=="), "!="
NUMBERS: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt,
    "-ge": operator.ge,
}  # fmt: skip
PATTERN = frozenset("*?[")


def holds(words: Sequence[str | None]) -> bool | None:
    """Whether a condition does, [ A = B ] or [ -n A ]; None where its words do not tell, each None of them being one
    that is not known.
    """
    if not words or words[0] not in OPENS or None in words:
        return None
    inner = [word for word in words[1:] if word is not None]
    if inner and inner[-1] in CLOSES:
        inner.pop()
    if inner[:1] == ["!"]:
        opposite = _compared(inner[1:])
        return None if opposite is None else not opposite
    return _compared(inner)


def _compared(words: Sequence[str]) -> bool | None:
    if len(words) == 2 and words[0] in ("-n", "-z"):
        return bool(words[1]) == (words[0] == "-n")
    if len(words) != 3 or PATTERN.intersection(words[2]):
        return None
    left, by, right = words
    if by in EQUAL or by == OTHER:
        return (left == right) == (by in EQUAL)
    return NUMBERS[by](int(left), int(right)) if by in NUMBERS and is_number(left) and is_number(right) else None


class Branches:
    """The conditions that a command stands in."""

    def __init__(self) -> None:
        self._taken: list[bool | None] = []
        """For each open `if`: True where an earlier branch is taken, False where none is; None: unknown."""
        self._now: list[bool | None] = []
        """For each open `if`: whether the condition of the current branch holds; None where that is unknown."""
        self._left_out: list[bool] = []
        """For each open `if`: whether the current branch never runs, or one around it."""
        self._is_stated = False
        """Whether the command before was the condition itself."""

    @property
    def is_left_out(self) -> bool:
        """Whether a command here never runs."""
        return bool(self._left_out) and self._left_out[-1]

    def follow(self, keyword: str, condition: Callable[[], bool | None]) -> None:
        """Follow a command by its first word; `condition`: whether what is behind `if`, or `elif`, holds. More commands
        than one before `then` do not tell.
        """
        if self._is_stated and keyword != "then" and self._now:
            self._set(None)
        self._is_stated = keyword in ("if", "elif")
        if keyword == "if":
            now = None if self.is_left_out else condition()
            self._taken.append(False)
            self._now.append(now)
            self._left_out.append(False)
            self._set(now)
        elif keyword in ("elif", "else") and self._now:
            taken, now = self._taken[-1], self._now[-1]
            self._taken[-1] = True if taken or now else None if None in (taken, now) else False
            self._set(condition() if keyword == "elif" else None)
        elif keyword == "fi" and self._now:
            for each in (self._taken, self._now, self._left_out):
                each.pop()

    def _set(self, now: bool | None) -> None:
        self._now[-1] = now
        around = self._left_out[-2] if len(self._left_out) > 1 else False
        self._left_out[-1] = around or self._taken[-1] is True or now is False
