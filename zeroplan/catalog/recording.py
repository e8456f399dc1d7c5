"""A recording as a file: gzipped JSON with a row for each thing that differs, so that identical layers stand once.

    {"zeroplan_trace": 1, "checksum": ..., "versions": {...}, "model": row, "program": row,
     "rows": [[type, field, ...], ...]}

A row refers to rows before it alone, as {"row": n}: nothing can refer to itself, and what is read is no larger than
the file.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from zeroplan.architectures.recorded.modules import ModuleRecord, RecordedParameter
from zeroplan.architectures.recorded.program import (
    Allocated,
    Backward,
    Call,
    Extent,
    Freed,
    GradientOf,
    Layout,
    Operator,
    Program,
    Release,
    Result,
    Saved,
)
from zeroplan.errors import SpecError

SCHEMA = 1
KINDS: tuple[type[Any], ...] = (
    Extent, Layout, Result, Saved, Allocated, Freed, GradientOf, Backward, Operator, Call, Release, Program,
    RecordedParameter, ModuleRecord,
)  # fmt: skip
"""Types of rows, by their number; one that is new comes last."""
LARGEST = 64_000_000
"""Bytes of a file's text; a dense model's has under one million."""
EXPECTED, WRITE = "a recording of zeroplan trace", "zeroplan trace MODEL -o model.trace.json"


class Recording(NamedTuple):
    """What was recorded of a model."""

    modules: ModuleRecord
    program: Program
    versions: Mapping[str, str]
    """Of torch and transformers."""


class _Rows:
    """Rows by their content."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.known: dict[str, int] = {}
        self.seen: dict[int, tuple[Any, Any]] = {}

    def written(self, value: Any) -> Any:
        if value is None or isinstance(value, int | float | str):
            return value
        if isinstance(value, Mapping):
            return [[self.written(key), self.written(each)] for key, each in value.items()]
        if type(value) not in KINDS:
            return [self.written(each) for each in value]
        if id(value) not in self.seen:
            row = [KINDS.index(type(value)), *[self.written(each) for each in value]]
            text = json.dumps(row)
            if text not in self.known:
                self.known[text] = len(self.rows)
                self.rows.append(row)
            self.seen[id(value)] = value, {"row": self.known[text]}  # kept: no other may have its identity
        return self.seen[id(value)][1]


def written(recording: Recording) -> bytes:
    """The file's bytes."""
    rows = _Rows()
    body = {
        "versions": dict(recording.versions), "model": rows.written(recording.modules),
        "program": rows.written(recording.program), "rows": rows.rows,
    }  # fmt: skip
    text = json.dumps(body, separators=(",", ":"))
    whole = {"zeroplan_trace": SCHEMA, "checksum": _checksum(text), **body}
    return gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), mtime=0)


def read(content: bytes, place: str) -> Recording:
    """The recording that a file's bytes are. Raises `SpecError`."""
    whole = _json(content, place)
    version = whole.pop("zeroplan_trace")
    if version != SCHEMA:
        raise SpecError(place, f"a recording of schema {version!r}", f"schema {SCHEMA}", WRITE)
    stated = whole.pop("checksum", None)
    if stated != _checksum(json.dumps(whole, separators=(",", ":"))):
        raise SpecError(place, "a recording that was altered", "one whose checksum is that of its content", WRITE)
    try:
        rows: list[Any] = []
        for row in whole["rows"]:
            rows.append(_row(row, rows))
        modules = _checked(_referred(whole["model"], rows), ModuleRecord)
        program = _checked(_referred(whole["program"], rows), Program)
        versions = _checked(whole["versions"], dict[str, str])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise SpecError(place, "a recording whose rows are not of its schema", EXPECTED, WRITE) from error
    return Recording(modules, program, versions)


def _json(content: bytes, place: str) -> dict[str, Any]:
    try:
        text = zlib.decompressobj(wbits=31).decompress(content, LARGEST + 1) if content[:2] == b"\x1f\x8b" else content
        if len(text) > LARGEST:
            raise SpecError(place, f"over {LARGEST:,} bytes", EXPECTED)
        whole = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise SpecError(place, "something that is cut off, or no JSON", EXPECTED, WRITE) from error
    if not isinstance(whole, dict) or "zeroplan_trace" not in whole:
        raise SpecError(place, "other JSON", EXPECTED, WRITE)
    return whole


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _referred(value: Any, rows: list[Any]) -> Any:
    """Lists as tuples, and the rows that are referred to."""
    if isinstance(value, list):
        return tuple([_referred(each, rows) for each in value])
    if isinstance(value, dict):
        number = value["row"]
        if type(number) is not int or not 0 <= number < len(rows):
            raise ValueError
        return rows[number]
    return value


def _row(row: list[Any], rows: list[Any]) -> Any:
    kind = KINDS[row[0]] if type(row[0]) is int and row[0] >= 0 else None
    if kind is None:
        raise ValueError
    fields = [_referred(each, rows) for each in row[1:]]
    if len(fields) != len(CHECKS[kind]):
        raise ValueError
    return kind(*[check(field) for check, field in zip(CHECKS[kind], fields, strict=True)])


Check = Callable[[Any], Any]


def _check_of(annotation: Any) -> Check:
    """What takes a value of the type, and raises `ValueError` for others."""
    origin, of = get_origin(annotation), get_args(annotation)
    if origin in (UnionType, Union):
        return _one_of([_check_of(each) for each in of])
    if origin is tuple:
        return _tuple_of([_check_of(each) for each in of if each is not ...], many=of[-1] is ...)
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        return _mapping_of(_check_of(of[0]), _check_of(of[1]))
    kinds = {float: (int, float)}.get(annotation, (NoneType if annotation is None else annotation,))

    def check(value: Any) -> Any:
        if type(value) not in kinds:
            raise ValueError
        return value

    return check


def _one_of(checks: list[Check]) -> Check:
    def check(value: Any) -> Any:
        for each in checks:
            try:
                return each(value)
            except ValueError:
                continue
        raise ValueError

    return check


def _tuple_of(checks: list[Check], *, many: bool) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not tuple or not (many or len(value) == len(checks)):
            raise ValueError
        return tuple([(checks[0] if many else checks[at])(each) for at, each in enumerate(value)])

    return check


def _mapping_of(key_check: Check, check_value: Check) -> Check:
    def check(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        return {key_check(key): check_value(each) for key, each in pairs}

    return check


def _checked(value: Any, annotation: Any) -> Any:
    return _check_of(annotation)(value)


CHECKS: dict[type[Any], list[Check]] = {
    kind: [_check_of(annotation) for annotation in get_type_hints(kind).values()] for kind in KINDS
}
"""Of each type's fields, in order."""
