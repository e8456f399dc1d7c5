"""A config as the rules look at it: what it says, what DeepSpeed makes of that, and how the file spells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from zeroplan.check.document import Document
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys import CURRENT
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.deepspeed.names import ACCELERATE_FILLS, OLD_OFFLOADS, canonical
from zeroplan.deepspeed.parallelism import SEQUENCE, makes_mesh
from zeroplan.deepspeed.values import AUTO
from zeroplan.errors import ZeroplanError

SWITCHES = ("fp16.enabled", "bf16.enabled")
"""Switches that releases before 0.17.1 read by hand: any text is true."""


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
        known = self.table.keys.get(path)
        if known is None or known.section in self.table.strict:
            return super().__call__(path)
        value = self.section(known.section).get(known.name, known.default)
        if path in SWITCHES and value != AUTO:
            return bool(value)
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
    def table(self) -> KeyTable:
        """The keys of the DeepSpeed that runs."""
        return self.setting.table

    @cached_property
    def config(self) -> dict[str, Any]:
        """As the file says it, without what an older DeepSpeed does not read."""
        config = _without_unread(self.document.config, "", self.table)
        if self.table.before("0.17.0") and not makes_mesh(config):
            return {name: value for name, value in config.items() if name != SEQUENCE}  # read for a mesh alone
        return config

    @cached_property
    def given(self) -> dict[str, Any]:
        """Without what is dropped where nobody fills it, with what Accelerate fills whatever the job."""
        return _with_filled(self.config) if self.setting.fills else _without_dropped(self.config, "", self.table)

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
            return AsRead(canonical(self.given, self.document.name, self.table), self.document.name, self.table)
        except ZeroplanError as error:
            return error

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every key that DeepSpeed comes across, in the order of the file."""
        return tuple(_entries(self.document.config, (), "", self.table))

    def spelled(self, path: str) -> tuple[str, ...]:
        """A path of the table as the file spells it, as far as it is there; what is missing is cut off."""
        result: list[str] = []
        section: Any = self.config
        for part in _parts(path):
            names = self._spellings(".".join([*_parts(self._canonical(tuple(result))), part]))
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

    def written(self, path: str) -> Any:
        """The value under this very name: the Trainer knows no other spellings. None when absent."""
        value: Any = self.config
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _canonical(self, path: tuple[str, ...]) -> str:
        known = self.table.key(".".join(path)) if path else None
        return known.path if known else ".".join(path)

    def _spellings(self, path: str) -> tuple[str, ...]:
        known, name = self.table.keys.get(path), path.rpartition(".")[2]
        old = tuple(old for old, new in OLD_OFFLOADS.items() if path == f"zero_optimization.{new}")
        return (name, *(known.aliases if known else ()), *old)


def _entries(section: dict[str, Any], path: tuple[str, ...], inside: str, table: KeyTable) -> Iterator[Entry]:
    for name, value in section.items():
        if not inside and name == "bfloat16" and section.get("bf16") is not None:
            continue  # not looked at (runtime/precision_config.py:33)
        known = table.inside(inside, name)
        yield Entry((*path, name), inside, known, value)
        if isinstance(value, dict) and known is not None:
            yield from _entries(value, (*path, name), known.path, table)


def _parts(path: str) -> list[str]:
    return path.split(".") if path else []


def _without_dropped(section: dict[str, Any], path: str, table: KeyTable) -> dict[str, Any]:
    """Without each "auto" that a strict section drops (runtime/config_utils.py:51)."""
    left = {}
    for name, value in section.items():
        if value == AUTO and path in table.strict - table.keeps_auto:
            continue
        known = table.inside(path, name)
        left[name] = _without_dropped(value, known.path if known else "?", table) if isinstance(value, dict) else value
        if value == AUTO and f"{path}.{name}" in SWITCHES:
            left[name] = True  # a text, where it is read by hand
    return left


def _with_filled(config: dict[str, Any]) -> dict[str, Any]:
    """With what Accelerate writes for "auto" in zero_optimization."""
    result = dict(config)
    for path, value in ACCELERATE_FILLS.items():
        *sections, name = path.split(".")
        section: Any = config
        for part in sections:
            section = section.get(part) if isinstance(section, dict) else None
        if isinstance(section, dict) and section.get(name) == AUTO:
            target = result
            for part in sections:
                target[part] = dict(target[part])
                target = target[part]
            target[name] = value
    return result


def _without_unread(section: dict[str, Any], path: str, table: KeyTable) -> dict[str, Any]:
    """Without keys that the newest DeepSpeed reads and this one does not."""
    if table is CURRENT:
        return section
    left = {}
    for name, value in section.items():
        known, newest = table.inside(path, name), CURRENT.inside(path, name)
        if known is not None or newest is None:
            inner = known is not None and isinstance(value, dict)
            left[name] = _without_unread(value, known.path, table) if inner and known else value
    return left
