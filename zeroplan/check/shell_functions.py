"""Functions of a shell script: where they are defined, and what a call hands on to one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from zeroplan.check.shell_variables import Variables, Word
from zeroplan.check.shell_words import behind_brackets

DEFINED = re.compile(
    r"^([ \t]*)(?:function[ \t]+([\w-]+)[ \t]*(?:\([ \t]*\))?|([\w-]+)[ \t]*\([ \t]*\))\s*\{", re.MULTILINE
)


class Function(NamedTuple):
    """A function of a script."""

    name: str
    start: int
    """Where its definition begins."""
    body: int
    """Where its first command may begin."""
    end: int


def functions(text: str) -> list[Function]:
    """Those of a script in order, none within another."""
    every, end = list[Function](), 0
    for match in DEFINED.finditer(text):
        if match.start() >= end:
            end = _end(text, match)
            every.append(Function(match[2] or match[3], match.start(), match.end(), end))
    return every


def _end(text: str, match: re.Match[str]) -> int:
    """Where its bracket closes: on a line that is as far in as the definition, or else by count."""
    line = text.find("\n", match.end())
    is_of_one_line = text[match.end() : line if line >= 0 else len(text)].strip() not in ("", "\\")
    close = None if is_of_one_line else re.compile(rf"^{match[1]}\}}", re.MULTILINE).search(text, match.end())
    return behind_brackets(text, match.end() - 1) - 1 if close is None else close.start()


@contextmanager
def handed_on(variables: Variables, words: Sequence[Word], every: str) -> Iterator[None]:
    """The arguments of a call while its function runs; where it is handed all that the script is, they stay as they
    are. `every`: what the call has behind the name, as it is written.
    """
    if every.strip() in ('"$@"', "$@", "$*", '"$*"'):
        yield
        return
    before = variables.take_arguments()
    variables.set_arguments(words)
    try:
        yield
    finally:
        variables.take_arguments()
        variables.values |= before
