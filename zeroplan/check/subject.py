"""A config as the rules look at it: what it says, what DeepSpeed makes of that, and how the file spells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from zeroplan.check.document import Document
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys import KEYS, STRICT_SECTIONS, key
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.names import OLD_OFFLOADS, canonical
from zeroplan.deepspeed.values import AUTO
from zeroplan.errors import ZeroplanError


class AsRead(Facts):
    """Facts as DeepSpeed has them: what it reads by hand it takes as it stands, null and texts included."""

    @cached_property
    def _seen(self) -> dict[str, Any]:
        """What was asked for before: forty rules look at the stage."""
        return {}

    def __call__(self, path: str) -> Any:
        if path not in self._seen:
            self._seen[path] = self._read(path)
        return self._seen[path]

    def _read(self, path: str) -> Any:
        known = KEYS[path]
        if known.section in STRICT_SECTIONS:
            return super().__call__(path)
        value = self.section(known.section).get(known.name, known.default)
        if isinstance(value, str) and known.choices and value.lower() in known.choices:
            return value.lower()
        return value


class Entry(NamedTuple):
    """A key of the file."""

    path: tuple[str, ...]
    section: str
    """The section it stands in, by the table's names."""
    known: Key | None
    value: Any

    @property
    def name(self) -> str:
        return self.path[-1]


@dataclass(frozen=True)
class Subject:
    """What a rule is given."""

    document: Document
    setting: Setting

    @cached_property
    def config(self) -> dict[str, Any]:
        """As the file says it."""
        return self.document.config

    @cached_property
    def given(self) -> dict[str, Any]:
        """Without what is dropped where nobody fills it."""
        return self.config if self.setting.fills else _without_dropped(self.config, "")

    @property
    def facts(self) -> AsRead:
        """What DeepSpeed gets. Raises `ContradictionError` where two spellings of one key contradict each other, which
        it refuses: what a check says of them then ends there (`zeroplan.check.check`).
        """
        if isinstance(self._facts, ZeroplanError):
            raise self._facts.with_traceback(None)
        return self._facts

    @cached_property
    def _facts(self) -> AsRead | ZeroplanError:
        try:
            return AsRead(canonical(self.given, self.document.name), self.document.name)
        except ZeroplanError as error:
            return error

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every key that DeepSpeed comes across, in the order of the file."""
        return tuple(_entries(self.config, (), ""))

    def spelled(self, path: str) -> tuple[str, ...]:
        """A path of the table as the file spells it, as far as it is there; what is missing is cut off."""
        result: list[str] = []
        section: Any = self.config
        for part in _parts(path):
            names = _spellings(".".join([*_parts(_canonical(tuple(result))), part]))
            present = next((name for name in names if isinstance(section, dict) and name in section), None)
            if present is None:
                break
            result.append(present)
            section = section[present]
        return tuple(result)

    def stated(self, path: str) -> Any:
        """The value at a path of the table, however it is spelled; None when absent."""
        spelled = self.spelled(path)
        if len(spelled) < len(_parts(path)):
            return None
        section: Any = self.config
        for name in spelled:
            section = section[name]
        return section


def _entries(section: dict[str, Any], path: tuple[str, ...], inside: str) -> Iterator[Entry]:
    for name, value in section.items():
        if not inside and name == "bfloat16" and section.get("bf16") is not None:
            continue  # not looked at (runtime/precision_config.py:33)
        known = key(f"{inside}.{name}" if inside else name)
        yield Entry((*path, name), inside, known, value)
        if isinstance(value, dict) and known is not None:
            yield from _entries(value, (*path, name), known.path)


def _parts(path: str) -> list[str]:
    return path.split(".") if path else []


def _canonical(path: tuple[str, ...]) -> str:
    known = key(".".join(path)) if path else None
    return known.path if known else ".".join(path)


def _spellings(path: str) -> tuple[str, ...]:
    known, name = KEYS.get(path), path.rpartition(".")[2]
    old = tuple(old for old, new in OLD_OFFLOADS.items() if path == f"zero_optimization.{new}")
    return (name, *(known.aliases if known else ()), *old)


def _without_dropped(section: dict[str, Any], path: str) -> dict[str, Any]:
    """Without each "auto" that a strict section drops (runtime/config_utils.py:51)."""
    left = {}
    for name, value in section.items():
        if value == AUTO and path in STRICT_SECTIONS:
            continue
        known = key(f"{path}.{name}" if path else name)
        left[name] = _without_dropped(value, known.path if known else "?") if isinstance(value, dict) else value
    return left
