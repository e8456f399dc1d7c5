"""Values of YAML that OmegaConf puts in as it reads a file: `${trainer.batch}`, `${oc.env:STAGE}` (omegaconf 2.4,
whose grammar Hydra's files have). What stands for them another file, an option or the environment decides.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.deepspeed.keys import key
from zeroplan.deepspeed.values import AUTO

INTERPOLATION = re.compile(r"\$\{[^{}]+")


class Known(NamedTuple):
    """A config as far as its file tells."""

    document: Document
    unknown: tuple[tuple[int, str], ...]
    """Lines and paths of keys that an interpolation stands for."""


def is_interpolated(value: object) -> bool:
    """Whether a value of the file is another's."""
    return isinstance(value, str) and INTERPOLATION.search(value) is not None


def known_of(document: Document) -> Known:
    """The config without what interpolations stand for; where the Trainer would fill that, with "auto"."""
    unknown: list[tuple[int, str]] = []
    root = _known(document, document.root, "", unknown)
    assert root is not None
    return Known(Document(document.name, document.text, root, document.remarks), tuple(unknown))


def _known(document: Document, node: ValueNode, path: str, unknown: list[tuple[int, str]]) -> ValueNode | None:
    """None for what is not to be put anywhere."""
    if node.members is not None:
        several = ((one, f"{path}.{one.name}" if path else one.name) for one in node.members)
        inside = [(one, _known(document, one.node, inner, unknown)) for one, inner in several]
        members = [Member(one.name, one.start, one.end, value) for one, value in inside if value is not None]
        return ValueNode(node.start, node.end, members=members)
    if node.items is not None:
        items = [_known(document, one, path, unknown) for one in node.items]
        return None if None in items else ValueNode(node.start, node.end, items=[one for one in items if one])
    if not is_interpolated(node.scalar):
        return node
    unknown.append((document.place(node.start).line, path))
    known = key(path)
    return ValueNode(node.start, node.end, scalar=AUTO) if known is not None and known.auto else None
