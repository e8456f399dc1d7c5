"""True, False and None where JSON has true, false and null: a dict of Python, written out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.check.json_reader import COMMENT, QUOTED

WORDS = {"True": "true", "False": "false", "None": "null"}
WORD = re.compile(
    rf"(?:{QUOTED.pattern})|(?:{COMMENT.pattern})|"
    r"(?<=[:\[,])\s*(True|False|None)(?=[ \t]*(?:[,}\]\r\n#]|//|/\*|\Z))",
    re.DOTALL,
)


class PythonWord(NamedTuple):
    """A word of Python's, and the one to write."""

    start: int
    word: str
    write: str


def python_words(text: str) -> list[PythonWord]:
    """Those that stand as values, outside of texts and comments."""
    return list(_words(text)) if any(word in text for word in WORDS) else []


def _words(text: str) -> Iterator[PythonWord]:
    for match in WORD.finditer(text):
        if match[1]:
            yield PythonWord(match.start(1), match[1], WORDS[match[1]])


def with_words_of_json(text: str, words: list[PythonWord]) -> str:
    """The text with JSON's words, each of which is as long as Python's: all places stay."""
    for one in words:
        text = text[: one.start] + one.write + text[one.start + len(one.word) :]
    return text
