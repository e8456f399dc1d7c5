"""JSON with places, and what DeepSpeed's own reader (hjson) allows beyond JSON, each noted where it stands.

Python's json keeps no places, and neither does hjson; PyYAML's nodes do, but YAML reads 5e8 as a text, joins
unquoted lines, and has other comments. So the file is read here, by the grammar that both readers share:
comments (#, //, /* */), trailing and missing commas, quotes of the other kind and none at all.
"""

from __future__ import annotations

import json
import re
from typing import Any

from zeroplan.catalog.files import LARGEST_CONFIG, MOST_DIGITS
from zeroplan.check.document import Document, Member, Remark, ValueNode
from zeroplan.errors import SpecError, ZeroplanError

DEEPEST = 100
"""Objects inside objects: a ds_config.json has four."""
BLANK = re.compile(r"[ \t\r\n]*")
COMMENT = re.compile(r"#[^\r\n]*|//[^\r\n]*|/\*.*?\*/", re.DOTALL)
QUOTED = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|\'(?:[^\'\\\x00-\x1f]|\\.)*\'')
LITERAL = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null|NaN|-?Infinity)"
                     r"(?=[ \t]*(?:[,}\]\r\n#]|//|/\*|\Z))")  # fmt: skip
WORDS = {"true": True, "false": False, "null": None}
BARE_NAME = re.compile(r"[^\s{}\[\],:\"']+")
BARE_TEXT = re.compile(r"[^\r\n]*")
COMMENTS, TRAILING, MISSING, QUOTES, UNQUOTED, BRACES = (
    "a comment", "a trailing comma", "no comma between two entries", "single quotes", "a text without quotes",
    "an object without braces",
)  # fmt: skip


class NotReadableError(ZeroplanError):
    """Neither JSON nor hjson; `offset` is where reading stopped."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def read_json(name: str, text: str) -> Document:
    """The document, an object. Raises `NotReadableError`, and `SpecError` for what is no config at all."""
    if len(text) > LARGEST_CONFIG:
        raise SpecError(name, f"{len(text):,} letters", f"a ds_config.json of at most {LARGEST_CONFIG:,}")
    if "\0" in text:
        raise SpecError(name, "a NUL byte", "a ds_config.json")
    return _Reader(name, text).document()


def comma_behind(text: str, at: int) -> int | None:
    """Where the comma stands that follows, comments aside; None where something else does."""
    while True:
        at = BLANK.match(text, at).end()  # type: ignore[union-attr]
        comment = COMMENT.match(text, at)
        if comment is None:
            return at if text[at : at + 1] == "," else None
        at = comment.end()


def is_bare(text: str, value: ValueNode) -> bool:
    """Whether a value is a text without quotes, which goes on to the end of its line with whatever is put there."""
    return isinstance(value.scalar, str) and not text.startswith(('"', "'"), value.start)


def ends(value: str, rest: str) -> bool:
    """Whether JSON ends where the rest of a line follows. Where neither a comma nor a bracket nor a comment does, a
    number or word is the beginning of a text without quotes.
    """
    literal = LITERAL.match(value + rest)
    return value[0] in '"{[' or (literal is not None and literal.end() == len(value))


class _Reader:
    def __init__(self, name: str, text: str) -> None:
        self.name, self.text, self.at = name, text, 0
        self.remarks: list[Remark] = []

    def document(self) -> Document:
        if self.text.startswith("﻿"):
            raise NotReadableError("a byte order mark stands before the config, save it as UTF-8 without one", 0)
        self._skip()
        if self._peek() == "{":
            root = self._value(0)
        elif (self._peek() and BARE_NAME.match(self.text, self.at)) or (self._peek() in "\"'" and self._peek()):
            self._remark(BRACES)
            root = self._object(self.at, 0, close="")
        else:
            raise self._stop("an object in {}")
        self._skip()
        if self.at < len(self.text):
            raise self._stop("the end of the file")
        self.remarks.sort(key=lambda remark: remark.offset)
        return Document(self.name, self.text, root, self.remarks)

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _remark(self, what: str) -> None:
        self.remarks.append(Remark(what, self.at))

    def _stop(self, expected: str) -> NotReadableError:
        character = self._peek()
        said = repr(character) if character else "the end of the file"
        return NotReadableError(f"found {said}, expected {expected}", min(self.at, max(len(self.text) - 1, 0)))

    def _skip(self) -> None:
        while True:
            self.at = at = BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
            comment = COMMENT.match(self.text, at) if self.text[at : at + 1] in ("#", "/") else None
            if comment is None and self.text.startswith("/*", at):
                raise self._stop("a comment that ends in '*/'")
            if comment is None:
                return
            self._remark(COMMENTS)
            self.at = comment.end()

    def _value(self, depth: int) -> ValueNode:
        if depth > DEEPEST:
            raise SpecError(self.name, f"over {DEEPEST} objects or lists inside one another", "a ds_config.json")
        start, letter = self.at, self._peek()
        if letter == "{":
            self.at += 1
            return self._object(start, depth, close="}")
        if letter == "[":
            self.at += 1
            return self._array(start, depth)
        return ValueNode(start, scalar=self._scalar(), end=self.at)

    def _scalar(self) -> Any:
        letter = self._peek()
        if letter and letter in "\"'":
            return self._quoted()
        if literal := LITERAL.match(self.text, self.at):
            self.at = literal.end()
            return _literal(literal.group())
        if not letter or letter in "{}[],:":
            raise self._stop("a value")
        self._remark(UNQUOTED)
        line = BARE_TEXT.match(self.text, self.at)
        assert line is not None
        self.at = line.end()
        return line.group().strip()

    def _quoted(self) -> str:
        match = QUOTED.match(self.text, self.at)
        if match is None:
            raise self._stop("a text that ends in a quote on its line")
        text = match.group()
        if text[0] == '"' and "\\" not in text:
            self.at = match.end()
            return text[1:-1]
        if text[0] == "'":
            self._remark(QUOTES)
            text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        try:
            read = json.loads(text)
        except ValueError as error:
            raise NotReadableError(f"a text that JSON cannot read ({error})", self.at) from error
        assert isinstance(read, str)
        self.at = match.end()
        return read

    def _name(self) -> str:
        if self._peek() and self._peek() in "\"'":
            return self._quoted()
        bare = BARE_NAME.match(self.text, self.at)
        if bare is None:
            raise self._stop("a key in quotes")
        self._remark(UNQUOTED)
        self.at = bare.end()
        return bare.group()

    def _object(self, start: int, depth: int, *, close: str) -> ValueNode:
        members: list[Member] = []
        self._skip()
        while self._peek() != close:
            begin = self.at
            name = self._name()
            end = self.at
            self._skip()
            if self._peek() != ":":
                raise self._stop("':' after a key")
            self.at += 1
            self._skip()
            members.append(Member(name, begin, end, self._value(depth + 1)))
            self._between(close)
        self.at += len(close)
        return ValueNode(start, end=self.at, members=members)

    def _array(self, start: int, depth: int) -> ValueNode:
        items: list[ValueNode] = []
        self._skip()
        while self._peek() != "]":
            items.append(self._value(depth + 1))
            self._between("]")
        self.at += 1
        return ValueNode(start, end=self.at, items=items)

    def _between(self, close: str) -> None:
        """To the next entry, or to the end of the object or list."""
        self._skip()
        if self._peek() == ",":
            comma = self.at
            self.at += 1
            self._skip()
            if self._peek() == close:
                self.remarks.append(Remark(TRAILING, comma))
        elif self._peek() != close:
            if not self._peek():
                raise self._stop(f"{close!r} or ','")
            self._remark(MISSING)


def _literal(text: str) -> Any:
    """A number, true, false or null. Whole numbers of more digits than any key means become floats, with which all
    arithmetic goes on.
    """
    if text in WORDS:
        return WORDS[text]
    try:
        return int(text) if len(text) <= MOST_DIGITS else float(text)
    except ValueError:
        return float(text)
