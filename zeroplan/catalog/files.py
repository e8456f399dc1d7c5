"""Reading the user's files: bounded, regular, UTF-8, and with an error that names the place."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from zeroplan.errors import SpecError, printable, shown

STANDARD_INPUT = "standard input"
"""What errors and reports call it."""
LARGEST_FILE = 4_000_000
"""Bytes. The largest config.json seen has 60 kB."""
LARGEST_CONFIG = 500_000
"""Bytes of a ds_config.json, TrainingArguments or a pyproject.toml: the largest ds_config.json seen has 60 kB."""
LARGEST_YAML = 200_000
"""Bytes of YAML, which takes a hundred times as long to read as JSON. The largest Accelerate config seen has 3 kB."""
MOST_DIGITS = 100
"""Most digits of a whole number: no key of any file means one as large."""
SPECIAL = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
"""As Python's json writes them."""
TAG = "__float__"
"""transformers 5 writes {"__float__": "Infinity"} (configuration_utils.py:_encode_special_floats)."""


SHORTEST = 3
"""Parts of a path with one folder: /tmp/ds.json."""
OF_DEEPSPEED = re.compile(r"(?:^|[^a-z])(?:ds|deepspeed|zero[0-3]?)(?:[^a-z]|conf|$)")
"""How people name a ds_config: ds_config.json, deepspeed.json, zero3_offload.json, my-ds-config.json."""
EVERYBODYS = ("ds_config.json", "deepspeed_config.json", "deepspeed.json", "zero1.json", "zero2.json", "zero3.json")
"""Names that may be another project's file too."""
LONGEST_END = 6
"""Parts of a path of another machine that are looked for here."""
GZIP, RECORDING = b"\x1f\x8b", b'{"zeroplan_trace"'
"""How a recording of a model begins."""


def is_recording(path: Path) -> bool:
    """Whether a file begins as one."""
    try:
        if not path.is_file():  # opening a pipe waits
            return False
        with open(path, "rb") as stream:
            return stream.read(len(RECORDING)).startswith((GZIP, RECORDING))
    except OSError:
        return False


def beside(path: str, named: str) -> tuple[str, ...]:
    """Where a file may be that another one names: as seen from that, from here, which is what Accelerate does, or from
    a folder between that and the root of its repository, where people start their runs. A path from the root of another
    machine may end in one below such a folder: /home/me/clone/configs/ds.json, or in its name alone: /tmp/ds.json.
    """
    folder, name = Path(path).parent, Path(named)
    if name.is_absolute():
        first = max(2, len(name.parts) - LONGEST_END)
        ends = [Path(*name.parts[at:]) for at in range(first, len(name.parts) - 1)]
        is_named = OF_DEEPSPEED.search(name.name) is not None and name.name not in EVERYBODYS
        is_alone = len(name.parts) <= SHORTEST or is_named
        alone = (str(folder / name.name),) if is_alone else ()
        return str(name), *_in_project(folder, ends, 0), *alone, *_in_clone(folder, name)
    names = [name] if len(name.parts) > 1 else []
    return str(folder / name), str(name), *_in_project(folder, names, 1), *_in_clone(folder, name)


def _in_clone(folder: Path, name: Path) -> Iterator[str]:
    """A path with the name of the project's own folder in it: clone/configs/ds.json, as seen from beside it, and on
    another machine /home/me/clone/ds.json.
    """
    root = Path(project_folders(os.path.abspath(folder), os.getcwd())[-1])
    if root.name in name.parts[:-1] and (name.is_absolute() or name.parts[0] == root.name):
        yield os.path.relpath(root / Path(*name.parts[name.parts.index(root.name) + 1 :]))


def _in_project(folder: Path, names: Sequence[Path], first: int) -> Iterator[str]:
    """Each name in a folder and those above it that belong to its project, from the `first` on, as seen from here."""
    here = os.getcwd()
    folders = project_folders(os.path.abspath(folder), here)[first:] if names else ()
    seen = folders if folder.is_absolute() else [os.path.relpath(one, here) for one in folders]
    yield from (str(Path(one) / name) for name in names for one in seen)


@cache
def project_folders(folder: str, here: str) -> tuple[str, ...]:
    """A folder and those above it that belong to the same project, up to the root of its repository, or else to `here`;
    itself alone where nothing says where that ends.
    """
    above = [folder]
    while not os.path.exists(os.path.join(above[-1], ".git")):
        parent = os.path.dirname(above[-1])
        if parent == above[-1]:
            return tuple(above[: above.index(here) + 1]) if here in above else (folder,)
        above.append(parent)
    return tuple(above)


def place_of(path: str | Path) -> str:
    """What errors and reports call a file."""
    return STANDARD_INPUT if str(path) == "-" else printable(str(path))


def read_text(path: str | Path, expected: str, largest: int = LARGEST_FILE) -> str:
    """The text of a regular file ('-' is standard input). Raises `SpecError`."""
    place = place_of(path)
    if str(path) == "-":
        if sys.stdin is None:
            raise SpecError(place, "nothing: it is closed", expected)
        return _decoded(place, sys.stdin.buffer.read(largest + 1), expected, largest)
    check_regular(path, expected, largest)
    try:
        with open(path, "rb") as stream:
            return _decoded(place, stream.read(largest + 1), expected, largest)
    except OSError as error:
        raise SpecError(place, (error.strerror or str(error)).lower(), expected) from error


def check_regular(path: str | Path, expected: str, largest: int) -> None:
    """Raises `SpecError` for what is no regular file of so many bytes: opening a pipe waits, a device has no end."""
    place = place_of(path)
    if not str(path).strip():
        raise SpecError("file name", "an empty name", expected)
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(place, reason.lower(), expected) from error
    if stat.S_ISDIR(status.st_mode):
        raise SpecError(place, "a folder", expected)
    if not stat.S_ISREG(status.st_mode):
        raise SpecError(place, "something that is not a regular file", expected)
    if status.st_size > largest:
        raise SpecError(place, f"{status.st_size:,} bytes", f"{expected} of at most {largest:,} bytes")


def _decoded(place: str, content: bytes, expected: str, largest: int) -> str:
    if len(content) > largest:
        raise SpecError(place, f"over {largest:,} bytes", expected)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{place}, byte {error.start}", "bytes that are not UTF-8", expected) from error


def read_object(
    path: str | Path, expected: str, *, largest: int = LARGEST_FILE, unique: bool = False, special: bool = False
) -> dict[str, Any]:
    """The object in a JSON file. Raises `SpecError` with line and column; for a key given twice when `unique`, and for
    what JSON has no number for (Infinity, NaN) unless `special`.
    """
    text, place = read_text(path, expected, largest), place_of(path)
    if not text.strip():
        raise SpecError(place, "an empty file", expected)
    hook: Callable[[list[tuple[str, Any]]], Any] | None = _special if special else None
    try:
        value = json.loads(
            text,
            parse_int=lambda digits: _whole(place, digits),
            parse_constant=SPECIAL.__getitem__ if special else lambda name: _not_json(place, name),
            object_pairs_hook=(lambda pairs: _once(place, pairs)) if unique else hook,
        )
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{place}:{error.lineno}:{error.colno}", f"text that is not JSON ({error.msg.lower()})", expected
        ) from error
    except RecursionError as error:
        raise SpecError(place, "nesting too deep to read", expected) from error
    if not isinstance(value, dict):
        kind = {"list": "a JSON list", "NoneType": "JSON null", "str": "a JSON string", "bool": "a JSON boolean"}
        raise SpecError(place, kind.get(type(value).__name__, "a JSON number"), f"{expected}: an object in {{}}")
    return value


def _once(place: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        seen: set[str] = set()
        for key, _value in pairs:
            if key in seen:
                raise SpecError(place, f"the key {shown(key)} twice", "each key once (DeepSpeed refuses it too)")
            seen.add(key)
    return mapping


def _special(pairs: list[tuple[str, Any]]) -> Any:
    """An object, or the number that transformers writes as one."""
    mapping = dict(pairs)
    tag = mapping.get(TAG) if len(mapping) == 1 else None
    return SPECIAL.get(tag, mapping) if isinstance(tag, str) else mapping


def _whole(place: str, digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise SpecError(place, f"a whole number of {len(digits):,} digits", f"one of at most {MOST_DIGITS}")
    return int(digits)


def _not_json(place: str, name: str) -> NoReturn:
    raise SpecError(place, name, "a finite number (JSON has no NaN or Infinity)")
