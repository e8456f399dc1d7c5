"""What `sed` makes of a text by s/BEFORE/AFTER/ (POSIX's sed and its basic regular expressions, and GNU's -E): as much
of it as templates of configs are filled with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

LONGEST, LONGEST_LINE = 64_000, 300
"""Letters of a text, and of a line in it, that are followed."""
REPEATED = 2
"""Pieces of one expression that may be any number of letters long."""
FLAGS = re.compile(r"g?(?=\s*(?:[;\n]|$))")
PIECE = re.compile(
    r"(?P<piece>\.|\\s|\[(?P<inside>\^?(?:\[:(?:space|digit|alpha|alnum):\]|[^\[\]\\])+)\])(?P<times>\*|\\?\+)?"
    r"|\\(?P<escaped>[^\w\s(){}|+?<>'`])|(?P<plain>[^\\*\[])"
)
CLASSES = {"[:space:]": r"\s", "[:digit:]": "0-9", "[:alpha:]": "a-zA-Z", "[:alnum:]": "a-zA-Z0-9"}
OTHER = re.compile(r"\\[^\W_nN]|\\N")
"""What a replacement may have beside letters, & and a new line."""
TWICE = re.compile(r"&&|\|\||~~|--")
"""What a list of letters may mean otherwise in Python."""
EXTENDED = frozenset("(){}|+?")
"""Letters that are no text in the expressions of -E."""


def substituted(text: str, script: str, *, extended: bool = False) -> str | None:
    """The text behind the commands of a script; None where it has another command than s, or another expression than
    letters, lists of letters and any letters.
    """
    if len(text) > LONGEST:
        return None
    text, end = (text[:-1], "\n") if text.endswith("\n") else (text, "")
    for command in _commands(script):
        pattern = None if command is None else _pattern(command[0], extended=extended)
        if command is None or pattern is None or (command[2] and pattern.match("")) or OTHER.search(command[1]):
            return None
        lines = text.split("\n")
        if max(map(len, lines)) > LONGEST_LINE:
            return None
        after, count = command[1], 0 if command[2] else 1
        text = "\n".join(pattern.sub(lambda match: _put(after, match[0]), line, count=count) for line in lines)  # noqa: B023
    return text + end


def _commands(script: str) -> Iterator[tuple[str, str, bool] | None]:
    """Expression and replacement of each s, and whether it is for all of a line; None for another command."""
    at = 0
    while at < len(script):
        if script[at] in " \t\n;":
            at += 1
            continue
        mark = script[at + 1 : at + 2]
        parts = _parts(script, at + 2, mark) if script[at] == "s" and mark and not mark.isalnum() else None
        flags = None if parts is None else FLAGS.match(script, parts[2])
        if parts is None or flags is None:
            yield None
            return
        yield parts[0], parts[1], bool(flags[0])
        at = flags.end()


def _parts(script: str, at: int, mark: str) -> tuple[str, str, int] | None:
    """What stands between three marks, and the place behind the last."""
    stated: list[str] = []
    for _part in range(2):
        start = at
        while at < len(script) and script[at] != mark:
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            return None
        stated.append(script[start:at].replace(f"\\{mark}", mark))
        at += 1
    return stated[0], stated[1], at


def _pattern(expression: str, *, extended: bool) -> re.Pattern[str] | None:
    """Python's expression for one of `sed`; None where it has more than is followed."""
    parts, at, repeated = list[str](), 0, 0
    while at < len(expression):
        match = PIECE.match(expression, at)
        if match is None or (extended and match["plain"] in EXTENDED) or TWICE.search(match["inside"] or ""):
            return None
        if match["piece"]:
            piece = match["piece"] if match["inside"] is None else f"[{_inside(match['inside'])}]"
            times = _times(match["times"], extended=extended)
            if times is None:
                return None
            repeated += bool(times)
            parts.append(piece + times)
        else:
            letter = match["escaped"] or match["plain"]
            is_end = match["escaped"] is None and (letter, at) in (("^", 0), ("$", len(expression) - 1))
            parts.append(letter if is_end else re.escape(letter))
        at = match.end()
    with suppress(re.error):
        return re.compile("".join(parts)) if expression and repeated <= REPEATED else None
    return None


def _inside(letters: str) -> str:
    """A list of letters as Python has it."""
    for name, meant in CLASSES.items():
        letters = letters.replace(name, meant)
    return letters


def _times(stated: str | None, *, extended: bool) -> str | None:
    """How often a piece may come, as Python has it; None for a plus that is a letter here."""
    if stated is None:
        return ""
    return "*" if stated == "*" else "+" if extended == (stated == "+") else None


def _put(after: str, matched: str) -> str:
    """A replacement, in which & is what was matched."""
    return re.sub(r"\\(.)|&", lambda one: matched if one[1] is None else "\n" if one[1] == "n" else one[1], after)
