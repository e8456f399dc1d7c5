"""Places of the words of a shell script, and where each command ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

ENDS = frozenset("\n;&|()")
"""Letters that end a command."""
CLOSES = {"(": ")", "{": "}"}
REDIRECTION = re.compile(r"(?:[0-9]|&)?(?:<{1,3}|>{1,2}\|?)&?(?!\()")
HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


class RawWord(NamedTuple):
    """Where a word stands, as it is written."""

    start: int
    end: int
    is_quoted: bool
    """Whether a quote is in it; of a here-document, around its mark."""
    is_here: bool = False
    """Whether it is a here-document, which no command has as a word."""
    redirected: str = ""
    """What stands before the name of a file that a command reads or writes, as 2>; empty for a word of its own."""


def raw_commands(text: str, start: int = 0, end: int | None = None) -> Iterator[list[RawWord]]:
    """The words of each command, of one at least, in a part of a text."""
    raws: list[RawWord] = []
    for raw in raw_words(text if end is None else text[:end], start):
        if raw is not None:
            raws.append(raw)
        elif raws:
            yield raws
            raws = []


def raw_words(text: str, start: int = 0, *, in_list: bool = False) -> Iterator[RawWord | None]:
    """Each word from a place on; None where a command ends."""
    at, length, here, redirected = start, len(text), list[re.Match[str]](), ""
    while at < length:
        letter = text[at]
        if text.startswith("\\\n", at) or text.startswith("\\\r\n", at):
            at = text.index("\n", at) + 1
        elif letter in " \t\r" or (in_list and letter == "\n"):
            at += 1
        elif letter == "#":
            end = text.find("\n", at)
            at = length if end < 0 else end
        elif (heredoc := HEREDOC.match(text, at)) is not None:
            here.append(heredoc)
            at = heredoc.end()
        elif letter == "\n" and here:
            for heredoc in here:
                end, behind = _heredoc(text, at, heredoc)
                yield RawWord(at + 1, max(end, at + 1), bool(heredoc[1]), True)
                at = behind
            here = []
            yield None
        elif (match := REDIRECTION.match(text, at)) is not None:
            redirected = match[0].rstrip("|")
            at = match.end()
        elif letter in ENDS:
            at, redirected = at + 1, ""
            yield None
        else:
            begin = at
            end, is_quoted = _end_of_word(text, begin)
            at = max(end, begin + 1)
            yield RawWord(begin, at, is_quoted, redirected=redirected)
            redirected = ""
    yield None


def closing(text: str, at: int, end: int) -> int:
    """Where the double quote that opens here ends; quotes within $(...) are its own."""
    close = at + 1
    while close < end and text[close] != '"':
        if text.startswith(("$(", "${"), close):
            close = behind_brackets(text, close + 1)
        else:
            close += 2 if text[close] == "\\" else 1
    return min(close, end)


def behind_brackets(text: str, at: int) -> int:
    """Behind the bracket that closes the one that opens here, ( or {."""
    depth, opens, closes = 0, text[at], CLOSES[text[at]]
    for place in range(at, len(text)):
        depth += {opens: 1, closes: -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def _heredoc(text: str, line: int, heredoc: re.Match[str]) -> tuple[int, int]:
    """Where it ends that begins behind this end of a line, and where its mark does."""
    close = re.compile(rf"^[ \t]*{heredoc[2]}[ \t\r]*$", re.MULTILINE).search(text, line + 1)
    return (close.start(), close.end()) if close else (len(text), len(text))


def _end_of_word(text: str, at: int) -> tuple[int, bool]:
    length, is_quoted = len(text), False
    start = at
    while at < length:
        letter = text[at]
        if letter == "'":
            close = text.find("'", at + 1)
            at, is_quoted = (length if close < 0 else close + 1), True
        elif letter == '"':
            at, is_quoted = min(length, closing(text, at, length) + 1), True
        elif letter in " \t\r<>":
            break
        elif letter == "\\":
            at += 3 if text.startswith("\\\r\n", at) else 2
        elif letter == "`":
            close = text.find("`", at + 1)
            at = length if close < 0 else close + 1
        elif text.startswith(("$(", "${"), at):
            at = behind_brackets(text, at + 1)
        elif letter == "(" and text[start:at].endswith("="):
            at = behind_brackets(text, at)
        elif letter in ENDS:
            break
        else:
            at += 1
    return min(at, length), is_quoted
