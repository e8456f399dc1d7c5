"""Where an unknown key was meant to stand, and what its name was meant to be."""

from __future__ import annotations

import difflib

from zeroplan.check.subject import Entry
from zeroplan.deepspeed.keys import KEYS, children

LIKELY = 0.75
COMMON = frozenset({
    "enabled", "type", "params", "seed", "dtype", "mode", "profile", "verbose", "project", "team", "group", "device",
    "pipeline",
})  # fmt: skip
"""Names of several sections, or of everyday words: no hint of where one belongs."""


_HOMES: dict[str, list[str]] = {}
for _known in KEYS.values():
    for _name in {_known.name, *_known.aliases} - COMMON:
        _HOMES.setdefault(_name, []).append(_known.path)


def at_home(name: str) -> tuple[str, ...]:
    """Paths of the table that end in this name, in its own or another spelling."""
    return tuple(_HOMES.get(name, ()))


def likely(entry: Entry) -> str:
    """The key of the same section that a name most likely meant; empty when none is near."""
    names = [name for known in children(entry.section) for name in (known.name, *known.aliases)]
    return (difflib.get_close_matches(entry.name.lower(), names, n=1, cutoff=LIKELY) or [""])[0]
