"""What `zeroplan check` finds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

ERROR, WARNING, ADVICE = "error", "warning", "advice"
SEVERITIES = (ERROR, WARNING, ADVICE)


LONGEST = 60
"""Letters of a value that a message repeats."""


def said(value: object) -> str:
    """A value as the file would write it, on one line and cut when long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


class Hit(NamedTuple):
    """What a rule says of a config, before it has a place in a file."""

    rule: str
    path: tuple[str, ...]
    """The key, as the file spells it; () for the whole."""
    message: str
    """What is there and what DeepSpeed does with it, in a sentence without a full stop."""
    write: str = ""
    """The line that mends it, or what to do; empty where nothing is to be written."""
    severity: str = ""
    """Where it is not the rule's own."""
    offset: int | None = None
    """Where it stands, if not at the last key of this path."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit with its place: line and columns from 1, the last column behind the key."""

    rule: str
    severity: str
    file: str
    line: int
    column: int
    end_column: int
    path: str
    message: str
    write: str
    link: str
