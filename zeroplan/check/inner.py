"""A config, or TrainingArguments, in a section of another program's file."""

from __future__ import annotations

import re
from typing import NamedTuple

from zeroplan.check.arguments import has_own
from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.kind import DEEPSPEED, JSON, OWN_KEYS, all_are_keys, is_config, is_others

OWN_NAME = re.compile(
    r"(?:ds[_-]?(?:config|cfg|conf)|deep_?speed)(?:[_-]?(?:config|cfg|conf|json|path|file|name|multi|single))*",
    re.IGNORECASE,
)
"""What programs call an option, or a key, of their own that names a ds_config."""
DEEPEST = 4
"""Sections within one another: trainer.strategy.init_args.config of Lightning's."""


class Inner(NamedTuple):
    """What a section is."""

    path: str
    document: Document
    is_config: bool
    """A ds_config; else TrainingArguments that name or hold one."""


def inner(document: Document) -> Inner | None:
    """The first such section, in the order of the file; None where there is none, or the file is a known tool's."""
    if is_others(document.config):
        return None
    return _inner(document, document.root, "", 0)


def _inner(document: Document, node: ValueNode, path: str, depth: int) -> Inner | None:
    for member in node.members or ():
        below = f"{path}.{member.name}".lstrip(".")
        if (what := _what(member)) is not None:
            root = ValueNode(member.start, member.end, members=member.node.members)
            return Inner(below, Document(document.name, document.text, root), what)
        if depth < DEEPEST and (deeper := _inner(document, member.node, below, depth + 1)) is not None:
            return deeper
    return None


def named_in(document: Document) -> tuple[str, str] | None:
    """Where such a file names a config by a key of its own, as paths.deepspeed, and the name; None where none is."""
    if is_others(document.config):
        return None
    named = ((".".join(path), member.node.scalar) for path, member in document.walk()
             if len(path) <= DEEPEST and OWN_NAME.fullmatch(member.name))  # fmt: skip
    return next((one for one in named if isinstance(one[1], str) and one[1].lower().endswith(JSON)), None)


def _what(member: Member) -> bool | None:
    """Whether a section is a ds_config; None for what is neither that nor TrainingArguments with one."""
    content = member.node.plain() if member.node.members is not None else {}
    if is_config(content) and OWN_KEYS & content.keys():
        return True if all_are_keys(content) else None
    stated = content.get(DEEPSPEED)
    names_one = isinstance(stated, str) and stated.lower().endswith(JSON)
    return False if has_own(content) and (names_one or (isinstance(stated, dict) and is_config(stated))) else None
