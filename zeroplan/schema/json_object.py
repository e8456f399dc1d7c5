"""A JSON object as a dataclass, and the dictionary that it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

SCHEMA_VERSION = 2
MERGED = {"merged": True}
"""Metadata of a field that holds another record, whose keys stand beside those of the other fields."""


@dataclass(frozen=True, kw_only=True)
class JsonObject:
    """Keys are the fields' names, `from_` being `from`. A field whose default is None is left out where it is None."""


@dataclass(frozen=True, kw_only=True)
class JsonDocument(JsonObject):
    """What one command prints."""

    schema_version: int = SCHEMA_VERSION
    """Version of this form."""
    command: str
    """The command that ran."""


class RecordField(NamedTuple):
    """One field of a record."""

    name: str
    key: str
    """As JSON has it."""
    is_optional: bool
    """Whether the key is left out where the value is None."""
    is_merged: bool
    """Whether the value's own keys stand in its place."""


def is_record(kind: Any) -> bool:
    """Whether a class is a dataclass or a NamedTuple, which JSON has as an object."""
    return isinstance(kind, type) and (is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")))


def members(kind: Any) -> Iterator[RecordField]:
    """The fields of a record."""
    if not is_dataclass(kind):
        yield from (RecordField(name, name, False, False) for name in kind._fields)
        return
    leaves_out = issubclass(kind, JsonObject)  # type: ignore[arg-type]
    for one in fields(kind):
        is_optional = leaves_out and one.default is None
        yield RecordField(one.name, one.name.rstrip("_"), is_optional, one.metadata == MERGED)


def copied(kind: type[T], record: Any, **others: Any) -> T:
    """An object of this kind whose fields are the record's attributes of the same names, but for `others`."""
    return kind(**{one.name: getattr(record, one.name) for one in members(kind) if one.name not in others}, **others)


def as_json(value: Any) -> Any:
    """Records as dictionaries, and what they hold likewise."""
    if is_record(type(value)):
        content: dict[str, Any] = {}
        for member in members(type(value)):
            part = getattr(value, member.name)
            if member.is_merged:
                content |= as_json(part)
            elif part is not None or not member.is_optional:
                content[member.key] = as_json(part)
        return content
    if isinstance(value, Mapping):
        return {key: as_json(part) for key, part in value.items()}
    return [as_json(part) for part in value] if isinstance(value, list | tuple) else value
