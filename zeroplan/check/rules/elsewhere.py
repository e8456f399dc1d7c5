"""Where an unknown key was meant to stand, and what its name was meant to be."""

from __future__ import annotations

import difflib
from functools import cache

from zeroplan.check.subject import Entry
from zeroplan.deepspeed.keys.table import KeyTable

LIKELY = 0.75
COMMON = frozenset({
    "enabled", "type", "params", "seed", "dtype", "mode", "profile", "verbose", "project", "team", "group", "device",
    "pipeline",
})  # fmt: skip
"""Names of several sections, or of everyday words: no hint of where one belongs."""


@cache
def _homes(table: KeyTable) -> dict[str, tuple[str, ...]]:
    homes: dict[str, tuple[str, ...]] = {}
    for known in table.keys.values():
        for name in {known.name, *known.aliases} - COMMON:
            homes[name] = (*homes.get(name, ()), known.path)
    return homes


def at_home(name: str, table: KeyTable) -> tuple[str, ...]:
    """Paths of the table that end in this name, in its own or another spelling."""
    return _homes(table).get(name, ())


def likely(entry: Entry, table: KeyTable) -> str:
    """The key of the same section that a name most likely meant; empty when none is near."""
    names = [name for known in table.children(entry.section) for name in (known.name, *known.aliases)]
    return (difflib.get_close_matches(entry.name.lower(), names, n=1, cutoff=LIKELY) or [""])[0]
