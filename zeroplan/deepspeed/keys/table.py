"""The keys that one version of DeepSpeed reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from zeroplan.deepspeed.keys.key import Key
from zeroplan.releases import number


class KeyTable:
    """The keys of one version, by their paths, and how it reads their sections."""

    def __init__(
        self, version: str, keys: Iterable[Key], *, strict: Iterable[str], open_sections: Iterable[str],
        removed: Mapping[str, str], keeps_auto: Iterable[str] = (), coerces: bool = False,
    ) -> None:  # fmt: skip
        self.version = version
        self.keys: Mapping[str, Key] = {known.path: known for known in keys}
        """Every key by its dotted path, sections included."""
        self.strict = frozenset(strict)
        """Sections where an unknown key stops the run; elsewhere, the top level included, it is silently ignored."""
        self.open = frozenset(open_sections)
        """Sections whose keys this table does not list in full, since another program or the user names them."""
        self.removed = removed
        """Keys that stop the run whatever they say, and what to write instead."""
        self.keeps_auto = frozenset(keeps_auto)
        """Strict sections that judge "auto" as any text, where others drop it."""
        self.coerces = coerces
        """Whether values become numbers and texts as in pydantic 1: a fraction is cut off, a number becomes a text."""

    def before(self, version: str) -> bool:
        """Whether this is an older version."""
        return number(self.version) < number(version)

    def key(self, path: str) -> Key | None:
        """The key at a dotted path, aliases understood (bfloat16.enabled is bf16.enabled); None when unknown."""
        section = ""
        entry: Key | None = None
        for part in path.split("."):
            entry = self._spellings.get((section, part))
            if entry is None:
                return None
            section = entry.path
        return entry

    def inside(self, section: str, name: str) -> Key | None:
        """The key of a section, under any of its names."""
        return self._spellings.get((section, name))

    def children(self, section: str = "") -> tuple[Key, ...]:
        """The keys directly inside a section, in the table's order; without an argument the top level's."""
        return self._children.get(section, ())

    @cached_property
    def _spellings(self) -> dict[tuple[str, str], Key]:
        return {(known.section, name): known for known in self.keys.values() for name in (known.name, *known.aliases)}

    @cached_property
    def _children(self) -> dict[str, tuple[Key, ...]]:
        children: dict[str, tuple[Key, ...]] = {}
        for known in self.keys.values():
            children[known.section] = (*children.get(known.section, ()), known)
        return children
