"""Python that a shell script runs itself, of a here-document or of a text behind -c."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from zeroplan.check.shell_script import Command
from zeroplan.check.shell_variables import UNKNOWN, Word

PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
OF_A_TEXT = "-c"
STANDS_FOR = "_"
"""What stands for what no line of the script sets: a name, whose value is not known."""
NOT_KNOWN = re.compile(
    rf""""(?:[^"\\\n]|\\.)*+(?:"|$)|'(?:[^'\\\n]|\\.)*+(?:'|$)|(?<![\w.])[\w.]*+{UNKNOWN}[\w.{UNKNOWN}]*""",
    re.MULTILINE,
)


def embedded_python(text: str, commands: Iterable[Command]) -> Iterator[str]:
    """Each text in Python of a script, in a file of blank lines, so that its lines are those of the script."""
    for command in commands:
        word = _code(command)
        is_whole = word is not None and text.count("\n", word.start, word.end) >= word.pieces.count("\n")
        if word is not None and is_whole and not command.is_left_out:
            start = word.start + (len(text[word.start : word.end]) > len(word.pieces))  # behind its quote
            yield "\n" * text.count("\n", 0, start) + NOT_KNOWN.sub(_stood_in, word.pieces)


def _stood_in(match: re.Match[str]) -> str:
    """A text, or a number, with a part that is not known."""
    return STANDS_FOR if UNKNOWN in match[0] else match[0]


def _code(command: Command) -> Word | None:
    words = command.words
    if PYTHON.fullmatch(words[0].text or "") is None:
        return None
    of_program = any(not (word.text or "?").startswith("-") for word in words[1:])
    if command.here is not None:
        return None if of_program else command.here
    at = next((at for at, word in enumerate(words) if word.text == OF_A_TEXT), len(words))
    return words[at + 1] if at + 1 < len(words) else None
