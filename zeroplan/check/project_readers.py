"""What the Python of a project says of a file that is looked at alone: who may read it, and what it has of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

from zeroplan.catalog.files import project_folders
from zeroplan.check.finding import WARNING, Finding
from zeroplan.check.kind import PYTHON
from zeroplan.check.rules.batch import NO_BATCH

UNKNOWN, FIELDS = "ZP833", "dataclass"
"""The rule on arguments that a release does not have, and what makes fields of a class such arguments."""
SETS_BATCH = re.compile(r"""\[["'](?:train_batch_size|train_micro_batch_size_per_gpu)["']\]\s*=[^=]""")
LIGHTNING_STRATEGY = re.compile(r"\bDeepSpeed(?:Strategy|Plugin)\(")
MOST_FOLDERS, MOST_FILES, LARGEST = 200, 300, 200_000
"""Folders and files of Python that are looked into, and bytes of each."""


def with_batch_put_in(findings: list[Finding], path: str) -> list[Finding]:
    """Findings of a file whose project hands configs to Lightning, which puts the batch in (lightning 2.6
    strategies/deepspeed.py:_format_batch_size_and_grad_accum_config), or puts it in itself: where it is missing, that
    may be right.
    """
    if not any(one.rule == NO_BATCH for one in findings):
        return findings
    root, here = _root(path), os.getcwd()
    if by := _lightnings(root, here):
        unless = f", unless Lightning reads it, as in {by}, and puts it in"
    elif by := _setting(root, here):
        unless = f", unless {by} puts it in"
    else:
        return findings
    return [replace(one, severity=WARNING, message=f"{one.message}{unless}") if one.rule == NO_BATCH else one
            for one in findings]  # fmt: skip


def without_own_arguments(findings: list[Finding], path: str) -> list[Finding]:
    """Findings of a file of arguments without those that a class of the project has as a field of its own."""
    names = {one.path for one in findings if one.rule == UNKNOWN and one.path.isidentifier()}
    own = _fields(frozenset(names), _root(path)) if names else frozenset()
    return [one for one in findings if one.rule != UNKNOWN or one.path not in own]


def _root(path: str) -> str:
    """The folder of the project that a file is in."""
    return project_folders(os.path.dirname(os.path.abspath(path)), os.getcwd())[-1]


@cache
def _fields(names: frozenset[str], folder: str) -> frozenset[str]:
    """Which of these names a class of the project has as a field."""
    field = re.compile(rf"^[ \t]+({'|'.join(sorted(names))})[ \t]*:[ \t]*[A-Za-z\"']", re.MULTILINE)
    return frozenset(match[1] for _path, text in _texts(folder) for match in field.finditer(text) if FIELDS in text)


@cache
def _lightnings(folder: str, here: str) -> str:
    """The first file of a project that gives Lightning's strategy a config; "" where none does."""
    texts = ((path, text) for path, text in _texts(folder) if "lightning" in text)
    return next((os.path.relpath(path, here) for path, text in texts if LIGHTNING_STRATEGY.search(text)), "")


@cache
def _setting(folder: str, here: str) -> str:
    """The first file of a project that sets a batch size of a config; "" where none does."""
    return next((os.path.relpath(path, here) for path, text in _texts(folder) if SETS_BATCH.search(text)), "")


def _texts(folder: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file of Python in a project."""
    for path in islice(_python(folder), MOST_FILES):
        try:
            if os.path.getsize(path) > LARGEST:
                continue
            with open(path, encoding="utf-8", errors="ignore") as stream:
                text = stream.read()
        except OSError:
            continue
        yield path, text


def _python(folder: str) -> Iterator[str]:
    for place, folders, names in islice(os.walk(folder), MOST_FOLDERS):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if name.endswith(PYTHON))
