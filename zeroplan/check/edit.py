"""Changes of a config's text that leave every other letter as it is.

Each function gives no edits, so that nothing is mended, where a comment would be lost or the place is not clear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise

from zeroplan.check.document import Document, ValueNode
from zeroplan.check.finding import Edit
from zeroplan.check.json_reader import BRACES, COMMENT, COMMENTS, comma_behind, ends, is_bare

Edits = tuple[Edit, ...]
Path = tuple[str, ...]


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits made, each at its place in `text`."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        assert edit.start >= at, "edits that overlap"
        parts += [text[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, text[at:]])


def overlap(edits: Iterable[Edit]) -> bool:
    """Whether two edits change the same letters, or one adds some where the other adds or deletes: neither knows then
    what stands beside it, or where a comma belongs.
    """
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.end))
    return any(one.end > other.start or _meet(one, other) for one, other in pairwise(ordered))


def _meet(one: Edit, other: Edit) -> bool:
    adds = [edit.start == edit.end for edit in (one, other)]
    return one.end == other.start and any(adds) and (all(adds) or not one.text or not other.text)


def renamed(document: Document, path: Path, name: str) -> Edits:
    """The key called otherwise, in quotes of its own kind."""
    member = document.members[path]
    quote = document.text[member.start]
    return (Edit(member.start, member.end, f"{quote}{name}{quote}" if quote in "\"'" else name),)


def valued(document: Document, path: Path, value: str) -> Edits:
    """The value replaced by JSON, where that ends there."""
    node = document.members[path].node
    rest = document.text[node.end : _line_end(document.text, node.end)]
    is_clear = ends(value, rest) and not document.has(COMMENTS, node.start, node.end)
    return (Edit(node.start, node.end, value),) if is_clear else ()


def deleted(document: Document, path: Path, start: int | None = None) -> Edits:
    """The key gone with value, comma, and its line if that is empty then; of a repeated key, that at `start`. The comma
    before goes with the last key alone: a number before any other needs it.
    """
    holder = _holder(document, path)
    start = document.members[path].start if start is None else start
    members = holder.members or []
    index = bisect_left(members, start, key=lambda member: member.start)
    if index == len(members) or members[index].start != start or document.has(BRACES):
        return ()
    text, end = document.text, members[index].node.end
    behind = comma_behind(text, end)
    is_last = index == len(members) - 1
    before = comma_behind(text, members[index - 1].node.end) if index and is_last and behind is None else None
    end = end if behind is None else behind + 1
    if document.has(COMMENTS, start, end):
        return ()
    span = _whole_line(text, start, end) or _in_line(text, start, end, swallow_before=behind is None)
    return (*([Edit(before, before + 1, "")] if before is not None else []), Edit(*span, ""))


def moved(document: Document, path: Path, section: Path, name: str = "") -> Edits:
    """The key with its value as the last of another section, an object that is there; () is the top level."""
    member = document.members[path]
    target = document.members[section].node if section else document.root
    gone = deleted(document, path)
    has_comment = document.has(COMMENTS, member.start, member.node.end)
    if target.members is None or not gone or has_comment or is_bare(document.text, member.node):
        return ()
    value = document.text[member.node.start : member.node.end]
    added = _added(document, target, f'"{name or path[-1]}": ', value, _indent(document.text, member.start))
    return (*gone, *added) if added and not overlap((*gone, *added)) else ()


def _added(document: Document, target: ValueNode, key: str, value: str, indent: str) -> Edits:
    """A new last member: on a line of its own where the last one ends its line, else behind it. None behind a text
    without quotes, which would take in the comma.
    """
    text = document.text
    if not target.members:
        return (Edit(target.start + 1, target.start + 1, key + value),)
    last = target.members[-1]
    if is_bare(text, last.node):
        return ()
    comma = comma_behind(text, last.node.end)
    end = last.node.end if comma is None else comma + 1
    missing = "," if comma is None else ""
    line_end = _line_end(text, end)
    if _line_end(text, last.start) > target.end or not _only_comment(text, end, line_end):
        return (Edit(end, end, f"{missing} {key}{value}"),)
    own = _indent(text, last.start)
    newline = "\r\n" if text[line_end - 1 : line_end] == "\r" else "\n"
    line_end -= len(newline) - 1
    line = newline + own + key + value.replace(f"\n{indent}", f"\n{own}")
    if not missing or line_end == end:
        return (Edit(line_end, line_end, missing + line),)
    return (Edit(end, end, missing), Edit(line_end, line_end, line))


def _holder(document: Document, path: Path) -> ValueNode:
    return document.members[path[:-1]].node if len(path) > 1 else document.root


def _only_comment(text: str, start: int, end: int) -> bool:
    """Whether nothing but a comment follows on the line."""
    left = text[start:end].strip()
    comment = COMMENT.match(left)
    return not left or (comment is not None and comment.end() == len(left))


def _whole_line(text: str, start: int, end: int) -> tuple[int, int] | None:
    first, last = text.rfind("\n", 0, start) + 1, _line_end(text, end)
    alone = not text[first:start].strip() and not text[end:last].strip()
    return (first, min(last + 1, len(text))) if alone and last < len(text) else None


def _in_line(text: str, start: int, end: int, *, swallow_before: bool) -> tuple[int, int]:
    """Without the blanks that stood beside it, but those that begin a line."""
    while not swallow_before and text[end : end + 1] in (" ", "\t"):
        end += 1
    line = text[text.rfind("\n", 0, start) + 1 : start]
    kept = len(line.rstrip(" \t")) if swallow_before and line.strip() else len(line)
    return start - len(line) + kept, end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
