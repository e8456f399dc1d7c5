"""The keys of every DeepSpeed from 0.14.0 on: `keys/history.json` says what each has otherwise than the newest."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from zeroplan.deepspeed.keys import CURRENT, KEYS, OPEN_SECTIONS, STRICT_SECTIONS
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.errors import ContradictionError, printable
from zeroplan.releases import number

PYDANTIC_2 = "0.15.0"
"""First version whose models are pydantic 2's."""


@cache
def _history() -> dict[str, Any]:
    text = resources.files("zeroplan.deepspeed.keys").joinpath("history.json").read_text(encoding="utf-8")
    history: dict[str, Any] = json.loads(text)
    return history


def versions() -> tuple[str, ...]:
    """The versions that are known, in order."""
    return tuple(_history()["versions"])


def last_of_each_minor() -> list[str]:
    """The last version of each minor release before the newest's own, the newest first: 0.18.9, 0.17.6 and so on."""
    last = {version.rpartition(".")[0]: version for version in versions()}
    return list(last.values())[-2::-1]


@cache
def is_within(version: str, since: str, until: str) -> bool:
    """Whether a version is from `since` on and before `until`; empty ones are no bound."""
    return (not since or number(version) >= number(since)) and (not until or number(version) < number(until))


@cache
def key_table(version: str = CURRENT.version) -> KeyTable:
    """The keys that a version reads. Raises `ContradictionError` for one that is not known."""
    if version == CURRENT.version:
        return CURRENT
    if version not in versions():
        first, last = versions()[0], versions()[-1]
        raise ContradictionError(
            f"DeepSpeed {printable(version)} is not known: known are the releases from {first} to {last}, such as "
            f"--deepspeed {last}"
        )
    history = _history()
    rows = {path: _at(spans, version) for path, spans in history["keys"].items()}
    keys = [_changed(known, rows.get(path, {})) for path, known in KEYS.items() if rows.get(path, {}) is not None]
    gone = [_gone(path, row) for path, row in rows.items() if path not in KEYS and row is not None]
    removed = {path: REMOVED_KEYS[path] for path, first in history["removed"].items() if is_within(version, first, "")}
    return KeyTable(
        version, [*keys, *gone], strict=_sections(STRICT_SECTIONS, "strict", version),
        open_sections=OPEN_SECTIONS | {path for path in REMOVED_KEYS if "." not in path}, removed=removed,
        keeps_auto=_sections(frozenset(), "keeps_auto", version), coerces=number(version) < number(PYDANTIC_2),
    )  # fmt: skip


def read_elsewhere(section: str, name: str, version: str) -> tuple[str, str] | None:
    """The version that reads a key which this one does not: the first newer one and "", or "" and the last older one;
    None where none reads it.
    """
    known = CURRENT.inside(section, name)
    path = known.path if known is not None else f"{section}.{name}".lstrip(".")
    spans = _history()["keys"].get(path, [])
    newer = [first for first, row in spans if row is not None and number(first) > number(version)]
    if newer:
        return newer[0], ""
    gone = [first for first, row in spans[1:] if row is None and number(first) <= number(version)]
    return ("", versions()[versions().index(gone[-1]) - 1]) if gone else None


def _at(spans: list[list[Any]], version: str) -> Any:
    """What holds at a version, of [first version, what] in order."""
    return next(what for first, what in reversed(spans) if number(first) <= number(version))


def _sections(usual: frozenset[str], name: str, version: str) -> frozenset[str]:
    """The sections of which something holds, where the history names those whose answer ever changes."""
    stated = {section: _at(spans, version) for section, spans in _history()[name].items()}
    return (usual - stated.keys()) | {section for section, holds in stated.items() if holds}


def _changed(known: Key, row: dict[str, Any]) -> Key:
    return known.replaced(**{name: tuple(value) if isinstance(value, list) and name in ("choices", "aliases") else value
                             for name, value in row.items()})  # fmt: skip


def _gone(path: str, row: dict[str, Any]) -> Key:
    """A key that the newest no longer reads."""
    base = Key(path=path, kind=row["kind"], default=row.get("default"), meaning="Removed since.", place="")
    return _changed(base, {name: value for name, value in row.items() if name not in ("kind", "default")})
