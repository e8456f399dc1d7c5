"""A config file as a tree that knows where each key and value stands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from zeroplan.errors import SpecError

Beside = Callable[[str], tuple[str, str] | None]
"""Name and text of a file that another names; None where it is not there."""


class NotYamlError(SpecError):
    """Text at which PyYAML stops, with the place."""

    def __init__(self, name: str, position: Position | None, why: str, expected: str) -> None:
        place = f"{name}:{position.line}:{position.column}" if position else name
        super().__init__(place, f"text that is not YAML ({why})", expected)
        self.position = position or Position(1, 1)


class Position(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


@dataclass(slots=True)
class ValueNode:
    """One value of the file between two offsets; `members` of an object, `items` of an array, else `scalar`."""

    start: int
    end: int = 0
    scalar: Any = None
    members: list[Member] | None = None
    items: list[ValueNode] | None = None

    def plain(self) -> Any:
        """The value as Python has it; of keys that are there twice, the last."""
        if self.members is not None:
            return {member.name: member.node.plain() for member in self.members}
        if self.items is not None:
            return [item.plain() for item in self.items]
        return self.scalar


@dataclass(slots=True)
class Member:
    """A key and its value."""

    name: str
    start: int
    end: int
    node: ValueNode


class Remark(NamedTuple):
    """Something that JSON does not allow and DeepSpeed's own reader does."""

    what: str
    offset: int


@dataclass
class Document:
    """A file that was read."""

    name: str
    text: str
    root: ValueNode
    remarks: list[Remark] = field(default_factory=list)
    """In the order of the file."""

    @cached_property
    def _starts(self) -> list[int]:
        """Where each line begins."""
        starts = [0]
        while (at := self.text.find("\n", starts[-1])) >= 0:
            starts.append(at + 1)
        return starts

    @cached_property
    def config(self) -> dict[str, Any]:
        """The whole as Python has it."""
        content = self.root.plain()
        assert isinstance(content, dict)
        return content

    @cached_property
    def noted(self) -> dict[str, list[int]]:
        """Where each kind of remark stands, in the order of the file."""
        offsets: dict[str, list[int]] = {}
        for remark in self.remarks:
            offsets.setdefault(remark.what, []).append(remark.offset)
        return offsets

    def has(self, what: str, start: int = 0, end: int | None = None) -> bool:
        """Whether there is a remark of this kind between two offsets, the second one excluded."""
        offsets = self.noted.get(what, [])
        at = bisect_left(offsets, start)
        return at < len(offsets) and (end is None or offsets[at] < end)

    def place(self, offset: int) -> Position:
        line = bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1)

    @cached_property
    def members(self) -> dict[tuple[str, ...], Member]:
        """Every key by its path; of keys that are there twice, the last."""
        return dict(self.walk())

    def repeated(self) -> Iterator[tuple[tuple[str, ...], Member, Member]]:
        """Each key that is there again, with the one of its name before it."""
        yield from _repeated((), self.root)

    def walk(self) -> Iterator[tuple[tuple[str, ...], Member]]:
        """Every key with its path, in the order of the file."""
        yield from _walk((), self.root)


def _walk(path: tuple[str, ...], node: ValueNode) -> Iterator[tuple[tuple[str, ...], Member]]:
    for member in node.members or ():
        inside = (*path, member.name)
        yield inside, member
        yield from _walk(inside, member.node)
    for item in node.items or ():
        yield from _walk(path, item)


def _repeated(path: tuple[str, ...], node: ValueNode) -> Iterator[tuple[tuple[str, ...], Member, Member]]:
    seen: dict[str, Member] = {}
    for member in node.members or ():
        if member.name in seen:
            yield (*path, member.name), seen[member.name], member
        seen[member.name] = member
        yield from _repeated((*path, member.name), member.node)
    for item in node.items or ():
        yield from _repeated(path, item)
