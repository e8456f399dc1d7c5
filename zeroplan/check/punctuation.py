"""What hjson leaves out or writes otherwise, put as JSON wants it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

from zeroplan.check.document import Document, ValueNode
from zeroplan.check.finding import Edit
from zeroplan.check.json_reader import BARE_NAME, BRACES, MISSING, QUOTES, TRAILING, UNQUOTED

MOST = 5_000
"""How many of a kind are mended at most: the largest ds_config.json seen has 3,000 entries."""


def as_json(document: Document, what: str) -> tuple[Edit, ...]:
    """Edits for every remark of a kind. None for comments, which JSON has no place for, for an object without braces,
    in a file with values without quotes: it is a template as often as not, and what it is filled with is not known; and
    where there are so many that no one wrote them.
    """
    offsets, bare = document.noted.get(what, []), document.noted.get(UNQUOTED, [])
    if document.has(BRACES) or len(offsets) > MOST or (bare and not {*bare} <= _keys(document)):
        return ()
    if what == TRAILING:
        return tuple(Edit(offset, offset + 1, "") for offset in offsets)
    if what == MISSING:
        ends = {after: end for end, after in _neighbours(document.root)}
        return tuple(Edit(ends[offset], ends[offset], ",") for offset in offsets)
    if what == UNQUOTED:
        names = [BARE_NAME.match(document.text, offset) for offset in offsets]
        return tuple(Edit(name.start(), name.end(), json.dumps(name.group())) for name in names if name)
    if what == QUOTES:
        return tuple(Edit(start, end, json.dumps(text, ensure_ascii=False)) for start, end, text in
                     _texts(document.root) if document.text[start] == "'")  # fmt: skip
    return ()


def _keys(document: Document) -> set[int]:
    """Where keys stand. A value without quotes may begin as a key does, on a line of its own."""
    return {member.start for _path, member in document.walk()}


def _neighbours(node: ValueNode) -> Iterator[tuple[int, int]]:
    """Where each entry ends and the next one begins."""
    entries = [(member.start, member.node) for member in node.members or ()]
    entries += [(item.start, item) for item in node.items or ()]
    for (_start, one), (begin, _node) in pairwise(entries):
        yield one.end, begin
    for _start, inside in entries:
        yield from _neighbours(inside)


def _texts(node: ValueNode) -> Iterator[tuple[int, int, str]]:
    """Keys and texts with their places."""
    if isinstance(node.scalar, str):
        yield node.start, node.end, node.scalar
    for member in node.members or ():
        yield member.start, member.end, member.name
        yield from _texts(member.node)
    for item in node.items or ():
        yield from _texts(item)
