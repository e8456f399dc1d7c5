"""What `zeroplan check` finds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

ERROR, WARNING, ADVICE = "error", "warning", "advice"
SEVERITIES = (ERROR, WARNING, ADVICE)


LONGEST = 60
"""Letters of a value that a message repeats."""


EXACT = 2**53
"""Up to here a float holds every whole number."""


def said(value: object) -> str:
    """A value as the file would write it, on one line and cut when long."""
    text = json.dumps(value, default=str)
    return named(text)


def path(name: str) -> str:
    """The name of a file in quotes, cut in the middle when long, so that its end is there."""
    half = LONGEST // 2
    return json.dumps(name if len(name) <= LONGEST else f"{name[: half - 3]}...{name[-half:]}")


def number(value: float) -> str:
    """A number in full, a whole one without a point: 1234567, of which `g` would leave 1.23457e+06."""
    whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer() and abs(value) < EXACT)
    return said(int(value) if whole else value)


def named(name: str) -> str:
    """A key as a message repeats it, cut when long, and in quotes where blanks at its ends would not be seen."""
    cut = name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
    return f'"{cut}"' if cut != cut.strip() else cut


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of the file's text and what replaces it: letters from the beginning, the last one behind the piece."""

    start: int
    """Place of its first letter in the text, from 0."""
    end: int
    """Place behind its last letter."""
    text: str
    """What replaces it."""


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
    edits: tuple[Edit, ...] = ()
    """What `--fix` changes, where there is one right answer (`zeroplan.check.rules.answers`)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit with its place: line and columns from 1, the last column behind the key."""

    rule: str
    """Id of the rule."""
    severity: str
    """error, warning or advice."""
    file: str
    """The file that it is in."""
    line: int
    """Line, from 1."""
    column: int
    """Column of the key, from 1."""
    end_column: int
    """Column behind the key."""
    path: str
    """The key, as the file spells it, with dots; empty for the whole."""
    message: str
    """What is there and what DeepSpeed does with it."""
    write: str
    """The line that mends it, or what to do; empty where nothing is to be written."""
    link: str
    """Where to read more."""
    edits: tuple[Edit, ...] = ()
    """What `--fix` changes, where there is one right answer."""
