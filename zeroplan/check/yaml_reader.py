"""YAML with the place of every key and value, read as PyYAML's `safe_load` does, which Accelerate calls.

Events are read one by one and put together here: PyYAML's own composer recurses, so that a file of brackets ends the
process, and unfolds aliases without an end. No tag is executed: one that is not YAML's own is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from zeroplan.catalog.files import LARGEST_YAML, MOST_DIGITS
from zeroplan.check.document import Document, Member, NotYamlError, Position, ValueNode
from zeroplan.errors import SpecError, shown

DEEPEST = 50
TOO_DEEP = "maximum nesting depth"
"""In libyaml's words, since PyYAML 6.0.4: it looks ahead, and stops at 1,000 before the first is read."""
MOST = 20_000
"""Values, those counted again that an alias repeats."""
STANDARD = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq"))
MERGE = "<<"


def read_yaml(name: str, text: str, expected: str) -> Document:
    """The document, a mapping. Raises `SpecError` for what is none, in one line."""
    if len(text) > LARGEST_YAML:
        raise SpecError(name, f"{len(text):,} letters", f"{expected} of at most {LARGEST_YAML:,}")
    try:
        root = _Tree(name, expected).document(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position, why = _position(text, mark.index) if mark else None, error.problem or error.context or ""
        if TOO_DEEP in why:
            place = f"{name}:{position.line}:{position.column}" if position else name
            raise SpecError(place, _deep(), expected) from error
        raise NotYamlError(name, position, why, expected) from error
    except yaml.YAMLError as error:
        raise NotYamlError(name, None, " ".join(str(error).split())[:80], expected) from error
    if root.members is None:
        raise SpecError(name, "no keys", expected)
    return Document(name, text, root)


def _position(text: str, index: int) -> Position:
    """Of libyaml, a lone carriage return ends a line too."""
    index = min(index, len(text.rstrip("\n")))
    return Position(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))


def _deep() -> str:
    return f"over {DEEPEST} lists or mappings inside one another"


class _Tree:
    """Nodes built from events."""

    def __init__(self, name: str, expected: str) -> None:
        self.name, self.expected = name, expected
        self.anchors: dict[str, tuple[ValueNode, int]] = {}
        """What an alias stands for, and how many values that is."""
        self.values = 0
        self.scalars = yaml.SafeLoader("")

    def document(self, text: str) -> ValueNode:
        events = iter(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        root: ValueNode | None = None
        for event in events:
            if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
                continue
            if not isinstance(event, yaml.DocumentStartEvent):
                raise AssertionError(event)
            if root is not None:
                raise self._error(event, "a second document", "one")
            root = self._node(next(events), events, 0)
        if root is None:
            raise SpecError(self.name, "an empty file", self.expected)
        return root

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> ValueNode:
        if depth > DEEPEST:
            raise self._error(event, _deep(), self.expected)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise self._error(event, f"the alias {shown(event.anchor)} of nothing before it", self.expected)
            node, size = self.anchors[event.anchor]
            self._count(event, size)
            return node
        before = self.values
        self._count(event, 1)
        self._refuse_tag(event)
        node = ValueNode(event.start_mark.index, event.end_mark.index)
        if isinstance(event, yaml.ScalarEvent):
            node.scalar = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.items = list(self._items(events, depth))
        else:
            node.members = list(self._members(events, depth))
        if event.anchor:
            self.anchors[event.anchor] = (node, self.values - before)
        return node

    def _items(self, events: Iterator[Any], depth: int) -> Iterator[ValueNode]:
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, events, depth + 1)

    def _members(self, events: Iterator[Any], depth: int) -> Iterator[Member]:
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                return
            key = self._node(event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if key.members is not None or key.items is not None:
                raise self._error(event, "a list or mapping as a key", "a name")
            if key.scalar == MERGE and value.members is not None:
                yield from value.members
            else:
                yield Member(str(key.scalar), event.start_mark.index, event.end_mark.index, value)

    def _count(self, event: Any, values: int) -> None:
        self.values += values
        if self.values > MOST:
            raise self._error(event, f"over {MOST:,} values, as aliases unfold", self.expected)

    def _refuse_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!" and event.tag not in STANDARD:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise self._error(event, f"the tag {shown(tag)}", "plain YAML, no tag is executed")

    def _scalar(self, event: Any) -> Any:
        """As `safe_load` resolves it: "no" is false, 1e-4 a text. It has no value for a word under the tag !!bool or
        nothing under !!int.
        """
        tag = event.tag if event.tag in STANDARD else None
        tag = tag or self.scalars.resolve(yaml.ScalarNode, event.value, event.implicit)  # type: ignore[no-untyped-call]
        try:
            value = self.scalars.construct_object(yaml.ScalarNode(tag, event.value))
        except (KeyError, IndexError) as error:
            kind = tag.rpartition(":")[2]
            raise self._error(event, f"{shown(event.value)} under the tag !!{kind}", f"a {kind}") from error
        except (yaml.YAMLError, ValueError, OverflowError):
            return event.value
        if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
            return float("inf") if value > 0 else float("-inf")
        return value if value is None or isinstance(value, bool | int | float | str) else event.value

    def _error(self, event: Any, found: str, expected: str) -> SpecError:
        mark = event.start_mark
        return SpecError(f"{self.name}:{mark.line + 1}:{mark.column + 1}", found, expected)
