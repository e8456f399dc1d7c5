"""Reading the user's files: bounded, regular, UTF-8, and with an error that names the place."""

from __future__ import annotations

import json
import stat
import sys
from math import inf
from pathlib import Path
from typing import Any, NoReturn

from zeroplan.errors import SpecError, shown

LARGEST_FILE = 4_000_000
"""Bytes. The largest config.json or ds_config.json seen has 60 kB."""


def read_text(path: str | Path, expected: str) -> str:
    """The text of a regular file ('-' is standard input). Raises `SpecError`."""
    if str(path) == "-":
        if sys.stdin is None:
            raise SpecError("standard input", "nothing: it is closed", expected)
        return _decoded("standard input", sys.stdin.buffer.read(LARGEST_FILE + 1), expected)
    place = shown(str(path))[1:-1]
    if not str(path).strip():
        raise SpecError("file name", "an empty name", expected)
    try:
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise SpecError(place, "a folder", expected)
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(place, "something that is not a regular file", expected)
        if status.st_size > LARGEST_FILE:
            raise SpecError(place, f"{status.st_size:,} bytes", f"{expected} of at most {LARGEST_FILE:,} bytes")
        return _decoded(place, Path(path).read_bytes(), expected)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(place, reason.lower(), expected) from error


def _decoded(place: str, content: bytes, expected: str) -> str:
    if len(content) > LARGEST_FILE:
        raise SpecError(place, f"over {LARGEST_FILE:,} bytes", expected)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{place}, byte {error.start}", "bytes that are not UTF-8", expected) from error


def read_object(path: str | Path, expected: str, *, unique: bool = False, infinite: bool = False) -> dict[str, Any]:
    """The object in a JSON file. Raises `SpecError` with line and column; for a key given twice when `unique`.

    `infinite`: Infinity may stand in it, as transformers writes it, and is a float.
    """
    text = read_text(path, expected)
    place = "standard input" if str(path) == "-" else shown(str(path))[1:-1]
    if not text.strip():
        raise SpecError(place, "an empty file", expected)
    try:
        value = json.loads(
            text,
            parse_constant=lambda name: inf if infinite and name == "Infinity" else _not_json(place, name),
            object_pairs_hook=(lambda pairs: _once(place, pairs)) if unique else None,
        )
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{place}:{error.lineno}:{error.colno}", f"text that is not JSON ({error.msg.lower()})", expected
        ) from error
    except (RecursionError, ValueError) as error:
        raise SpecError(place, "nesting or a number too large to read", expected) from error
    if not isinstance(value, dict):
        kind = {"list": "a JSON list", "NoneType": "JSON null", "str": "a JSON string", "bool": "a JSON boolean"}
        raise SpecError(place, kind.get(type(value).__name__, "a JSON number"), f"{expected}: an object in {{}}")
    return value


def _once(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _value in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise SpecError(place, f"the key {shown(key)} twice", "each key once (DeepSpeed refuses it too)")
    return dict(pairs)


def _not_json(place: str, name: str) -> NoReturn:
    raise SpecError(place, name, "a finite number (JSON has no NaN or Infinity)")
