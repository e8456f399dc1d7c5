"""A recording as a file: JSON with a row for each thing that differs, so that identical layers stand once.

    {"zeroplan_trace": 2, "checksum": ..., "recording": row, "rows": [
    [type, field, ...],
    ...
    ]}

A row refers to rows before it alone, as {"row": n}: nothing can refer to itself, and what is read is no larger than
the file. Rows stand on lines of their own, of which those of a program are parsed when it runs; one that was laid out
otherwise is read too. It may be gzipped.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from zeroplan.architectures.recorded.model import recorded_model
from zeroplan.architectures.recorded.modules import ModuleRecord, RecordedBuffer, RecordedParameter
from zeroplan.architectures.recorded.program import (
    Allocated,
    Backward,
    Call,
    Extent,
    Freed,
    GradientOf,
    Keeps,
    Layout,
    Operator,
    Program,
    Release,
    Result,
    Saved,
)
from zeroplan.architectures.recorded.recording import Recording, Variant
from zeroplan.catalog.files import GZIP, check_regular, place_of
from zeroplan.errors import SpecError
from zeroplan.specs.images import Images
from zeroplan.specs.model import Model, ModelInput, Shape

SCHEMA = 2
KINDS: tuple[type[Any], ...] = (
    Extent, Layout, Result, Saved, Allocated, Freed, GradientOf, Backward, Operator, Call, Release, Program,
    RecordedParameter, RecordedBuffer, ModuleRecord, Shape, ModelInput, Variant, Recording, Images, Keeps,
)  # fmt: skip
"""Types of rows, by their number; one that is new comes last."""
SINCE: dict[type[Any], int] = {Recording: 1}
"""How many fields a type has got at its end since there are files of this schema, which lack them: `target`."""
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
LARGEST = 64_000_000
"""Bytes of a file's text; a dense model's has under one million."""
CUT_OFF = "something that is cut off, or no JSON"
EXPECTED, WRITE = "a recording of zeroplan trace", "zeroplan trace MODEL -o model.trace.json"


class _Rows:
    """Rows by their content."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.known: dict[str, int] = {}
        self.seen: dict[int, tuple[Any, Any]] = {}

    def written(self, value: Any) -> Any:
        if value is None or isinstance(value, (int, str, float)):
            return value
        kind = NUMBERS.get(type(value))
        if kind is None:
            if isinstance(value, Mapping):
                return [[self.written(key), self.written(each)] for key, each in value.items()]
            return [self.written(each) for each in value]
        if id(value) not in self.seen:
            row = [kind, *[self.written(each) for each in value]]
            text = repr(row)
            if text not in self.known:
                self.known[text] = len(self.rows)
                self.rows.append(row)
            self.seen[id(value)] = value, {"row": self.known[text]}  # kept: no other may have its identity
        return self.seen[id(value)][1]


def written(recording: Recording) -> str:
    """The file's text."""
    rows = _Rows()
    body = _laid_out(rows.written(recording), rows.rows)
    return f'{{"zeroplan_trace":{SCHEMA},"checksum":"{_checksum(body)}",{body[1:].decode()}\n'


def _laid_out(recording: Any, rows: list[Any]) -> bytes:
    """All but the schema and the checksum, whose text this is."""
    return b'{"recording":%b,"rows":[\n%b\n]}' % (_dumped(recording), b",\n".join(map(_dumped, rows)))


def from_file(path: Path) -> Recording:
    """The recording in a file. Raises `SpecError`."""
    check_regular(path, EXPECTED, LARGEST)
    return read(path.read_bytes(), place_of(path))


def model_from_file(path: Path, *, source: str, name: str = "") -> Model:
    """The model whose recording is in a file; `source`: what screens call it. Raises `SpecError`."""
    return recorded_model(from_file(path), source=source, name=name)


def read(content: bytes, place: str) -> Recording:
    """The recording that a file's bytes are. Raises `SpecError`."""
    text = _text(content, place)
    checksum = _checksum(b"{" + text[text.find(b'"recording":') :].strip())
    try:
        whole = _by_lines(text, checksum) or json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(place, CUT_OFF, EXPECTED, WRITE) from error
    if not isinstance(whole, dict) or "zeroplan_trace" not in whole:
        raise SpecError(place, "other JSON", EXPECTED, WRITE)
    version = whole.pop("zeroplan_trace")
    if version != SCHEMA:
        raise SpecError(place, f"a recording of schema {version!r}", f"schema {SCHEMA}", WRITE)
    stated = whole.pop("checksum", None)
    if stated != checksum and stated not in map(_checksum, _other_layouts(whole)):
        raise SpecError(place, "a recording that was altered", "one whose checksum is that of its content", WRITE)
    return _Reader(place, whole).recording()


def _other_layouts(whole: dict[str, Any]) -> Iterator[bytes]:
    """What the checksum may be of where a program has laid the file out anew."""
    yield _dumped(whole)
    if isinstance(whole.get("rows"), list):
        yield _laid_out(whole.get("recording"), whole["rows"])


def _by_lines(text: bytes, checksum: str) -> dict[str, Any] | None:
    """A file's content where it is as `written` laid it out, each row its text; None where it is not."""
    head, *rows = text.strip().split(b"\n")
    if not (head.endswith(b'"rows":[') and rows and rows.pop() == b"]}"):
        return None
    try:
        whole = json.loads(head + b"]}")
    except (ValueError, RecursionError):
        return None
    is_same = isinstance(whole, dict) and whole.get("checksum") == checksum
    return {**whole, "rows": rows} if is_same else None


def _text(content: bytes, place: str) -> bytes:
    try:
        text = zlib.decompressobj(wbits=31).decompress(content, LARGEST + 1) if content.startswith(GZIP) else content
        if len(text) > LARGEST:
            raise SpecError(place, f"over {LARGEST:,} bytes", EXPECTED)
    except zlib.error as error:
        raise SpecError(place, CUT_OFF, EXPECTED, WRITE) from error
    return text


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


class _Reader:
    """Rows of a file, each made when it is first referred to."""

    def __init__(self, place: str, whole: dict[str, Any]) -> None:
        self.place, self.whole = place, whole
        self.made: dict[int, Any] = {}

    def recording(self) -> Recording:
        """All but its programs. Raises `SpecError`."""
        with self.of_schema():
            number = self.whole["recording"]["row"]
            row = self.whole["rows"][number] = self.parsed(number)
            at = 1 + Recording._fields.index("programs")
            programs, row[at] = _Programs(self, list(row[at])), []
            recording = self.row(number)
            if type(recording) is not Recording:
                raise ValueError
            if any(not 0 <= each.program < len(programs) for each in recording.variants):
                raise ValueError
            return recording._replace(programs=programs)

    @contextmanager
    def of_schema(self) -> Iterator[None]:
        try:
            yield
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
            raise SpecError(self.place, "a recording whose rows are not of its schema", EXPECTED, WRITE) from error

    def referred(self, value: Any, before: int) -> Any:
        """Lists as tuples, and rows that are referred to, which come before that one."""
        if isinstance(value, list):
            return tuple([self.referred(each, before) for each in value])
        if isinstance(value, dict):
            number = value["row"]
            if type(number) is not int or not 0 <= number < before:
                raise ValueError
            if number not in self.made:
                self.made[number] = self.row(number)
                self.whole["rows"][number] = None  # read for good: thousands of lists
            return self.made[number]
        return value

    def parsed(self, number: int) -> Any:
        row = self.whole["rows"][number]
        return json.loads(row.removesuffix(b",")) if isinstance(row, bytes) else row

    def row(self, number: int) -> Any:
        place, *stated = self.parsed(number)
        kind = KINDS[place] if type(place) is int and place >= 0 else None
        if kind is None:
            raise ValueError
        fields = [self.referred(each, number) if type(each) in (list, dict) else each for each in stated]
        checks = CHECKS[kind]
        if not len(checks) - SINCE.get(kind, 0) <= len(fields) <= len(checks):
            raise ValueError
        return kind(*[_checked(field, check) for field, check in zip(fields, checks, strict=False)])


class _Programs(Sequence[Program]):
    """Those of a file, each read when it is first looked at."""

    def __init__(self, reader: _Reader, rows: list[Any]) -> None:
        self.reader, self.rows = reader, rows

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, at: Any) -> Any:
        stated = self.rows[at]
        with self.reader.of_schema():
            program = self.reader.referred(stated, len(self.reader.whole["rows"]))
            if type(program) is not Program:
                raise ValueError
            return program


Check = frozenset[type] | Callable[[Any], Any]
"""Types that a value may have; or what takes a value, and raises `ValueError` for others."""


def _checked(value: Any, check: Check) -> Any:
    if not isinstance(check, frozenset):
        return check(value)
    if type(value) not in check:
        raise ValueError
    return value


def _check_of(annotation: Any) -> Check:
    """What takes values of the type."""
    origin, of = get_origin(annotation), get_args(annotation)
    if origin in (UnionType, Union):
        return _one_of([_check_of(each) for each in of])
    if origin is Sequence:
        return _tuple_of([_check_of(of[0])], many=True)
    if origin is tuple:
        return _tuple_of([_check_of(each) for each in of if each is not ...], many=of[-1] is ...)
    if origin in (dict, Mapping) or getattr(origin, "__name__", "") == "Mapping":
        return _mapping_of(_check_of(of[0]), _check_of(of[1]))
    return frozenset({float: (int, float)}.get(annotation, (NoneType if annotation is None else annotation,)))


def _one_of(checks: list[Check]) -> Check:
    types = [each for each in checks if isinstance(each, frozenset)]
    if len(types) == len(checks):
        return frozenset[type]().union(*types)

    def check(value: Any) -> Any:
        for each in checks:
            try:
                return _checked(value, each)
            except ValueError:
                continue
        raise ValueError

    return check


def _tuple_of(checks: list[Check], *, many: bool) -> Check:
    types = checks[0] if many and isinstance(checks[0], frozenset) else None

    def check(value: Any) -> Any:
        if type(value) is not tuple or not (many or len(value) == len(checks)):
            raise ValueError
        if types is None:
            return tuple([_checked(each, checks[0] if many else checks[at]) for at, each in enumerate(value)])
        if not types.issuperset(map(type, value)):
            raise ValueError
        return value

    return check


def _mapping_of(key_check: Check, check_value: Check) -> Check:
    def check(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        return {_checked(key, key_check): _checked(each, check_value) for key, each in pairs}

    return check


CHECKS: dict[type[Any], list[Check]] = {
    kind: [_check_of(annotation) for annotation in get_type_hints(kind).values()] for kind in KINDS
}
"""Of each type's fields, in order."""
