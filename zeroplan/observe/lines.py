"""The lines of a log, most of which tell nothing: blocks without a known word are counted and passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

LONGEST = 1 << 16
"""Bytes of a line that are looked at in one piece."""
BLOCK = 1 << 20
WORDS = (
    b"GB", b"time (ms)", b"step=", b"Engine", b"per GPU:", b"world size:", b"ZeRO stage", b"config.py:", b"Comm. Op",
    b"DeepSpeed", b"Breakdown with straggler effect", b"\x1b",
)  # fmt: skip
"""One of them is in each line that `Log` reads outside a table, or a colour, which may part the word."""


class LineChunk(NamedTuple):
    """A line, or a part of a long one."""

    line: int
    """Its number, from 1."""
    text: bytes
    """Without the end of the line."""


class Lines:
    """Pieces of a file's lines that may tell something."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.count = 0
        """Lines passed so far; in the end all of the file."""
        self.every = False
        """Whether lines are handed out that have none of the words, as the rows of a table."""

    def __iter__(self) -> Iterator[LineChunk]:
        rest = b""
        while block := self.file.read(BLOCK):
            text = rest + block
            end = text.rfind(b"\n") + 1 or len(text) - len(text) % LONGEST
            rest = text[end:]
            yield from self._pieces(text[:end])
        yield from self._pieces(rest)
        self.count += bool(rest)

    def _pieces(self, text: bytes) -> Iterator[LineChunk]:
        if not self._tells(text):
            self.count += text.count(b"\n")
            return
        *whole, last = text.split(b"\n")
        for line in whole:
            if line and self._tells(line):
                yield from self._cut(line)
            self.count += 1
        if last and self._tells(last):
            yield from self._cut(last)

    def _tells(self, text: bytes) -> bool:
        return self.every or any(word in text for word in WORDS)

    def _cut(self, line: bytes) -> Iterator[LineChunk]:
        for start in range(0, len(line), LONGEST):
            yield LineChunk(self.count + 1, line[start : start + LONGEST])
