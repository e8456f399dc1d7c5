"""Values of YAML that OmegaConf puts in as it reads a file: `${trainer.batch}`, `${oc.env:STAGE}` (omegaconf 2.4,
whose grammar Hydra's files have). What stands for them another file, an option or the environment decides.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.deepspeed.keys import children, key
from zeroplan.deepspeed.values import AUTO

INTERPOLATION = re.compile(r"\$\{[^{}]+")

NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?[eE][-+]?\d+")
"""What it resolves to a number and PyYAML does not (omegaconf 2.4 _utils.py:get_yaml_loader)."""


class Known(NamedTuple):
    """A config as far as its file tells."""

    document: Document
    unknown: tuple[tuple[int, str], ...]
    """Lines and paths of keys that an interpolation stands for."""


def is_interpolated(value: object) -> bool:
    """Whether a value of the file is another's."""
    return isinstance(value, str) and INTERPOLATION.search(value) is not None


def known_of(document: Document, *, by_another: bool = False) -> Known:
    """The config without what interpolations stand for; where the Trainer would fill that, with "auto". Its numbers are
    OmegaConf's where there is any, or where a tool reads the file of which it is a part (`by_another`).
    """
    of_omegaconf = by_another or INTERPOLATION.search(document.text) is not None
    unknown: list[tuple[int, str]] = []

    def known(node: ValueNode, path: str) -> ValueNode | None:
        """None for what is not to be put anywhere."""
        if node.members is not None:
            several = ((one, f"{path}.{one.name}" if path else one.name) for one in node.members)
            inside = [(one, known(one.node, inner)) for one, inner in several]
            members = [Member(one.name, one.start, one.end, value) for one, value in inside if value is not None]
            return ValueNode(node.start, node.end, members=members)
        if node.items is not None:
            items = [known(one, path) for one in node.items]
            return None if None in items else ValueNode(node.start, node.end, items=[one for one in items if one])
        if not is_interpolated(node.scalar):
            return as_number(document, node) if of_omegaconf else node
        unknown.append((document.place(node.start).line, path))
        return stand_in(node.start, node.end, path)

    root = known(document.root, "")
    assert root is not None
    return Known(Document(document.name, document.text, root, document.remarks), tuple(unknown))


def stand_in(start: int, end: int, path: str) -> ValueNode | None:
    """What stands for a value that is not known: "auto" where the Trainer would fill it, null where there is no such
    key, of which the name alone is looked at; None for nothing.
    """
    known, section = key(path), path.rpartition(".")[0]
    if known is not None:
        return ValueNode(start, end, scalar=AUTO) if known.auto else None
    return ValueNode(start, end, scalar=None) if children(section) else None


def as_number(document: Document, node: ValueNode) -> ValueNode:
    """The number that a word such as 1e9 is to OmegaConf, and to jsonargparse, and a text to PyYAML."""
    quoted = document.text[node.start : node.start + 1] in "\"'"
    if quoted or not isinstance(node.scalar, str) or not NUMBER.fullmatch(node.scalar):
        return node
    return ValueNode(node.start, node.end, scalar=float(node.scalar))
