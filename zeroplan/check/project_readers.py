"""Who in a project may read a ds_config of which nothing else tells it."""

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

LIGHTNING_STRATEGY = re.compile(r"\bDeepSpeed(?:Strategy|Plugin)\(")
MOST_FOLDERS, MOST_FILES, LARGEST = 200, 300, 200_000
"""Folders and files of Python that are looked into, and bytes of each."""


def with_lightning(findings: list[Finding], path: str) -> list[Finding]:
    """Findings of a file whose project hands configs to Lightning, which puts the batch in (lightning 2.6
    strategies/deepspeed.py:_format_batch_size_and_grad_accum_config): where it is missing, that may be right.
    """
    if not any(one.rule == NO_BATCH for one in findings) or not (by := _lightnings(os.path.abspath(path), os.getcwd())):
        return findings
    unless = f", unless Lightning reads it, as in {by}, and puts it in"
    return [replace(one, severity=WARNING, message=f"{one.message}{unless}") if one.rule == NO_BATCH else one
            for one in findings]  # fmt: skip


def _lightnings(path: str, here: str) -> str:
    """The first file of a project that gives Lightning's strategy a config; "" where none does."""
    return _in_project(project_folders(os.path.dirname(path), here)[-1], here)


@cache
def _in_project(folder: str, here: str) -> str:
    for path in islice(_python(folder), MOST_FILES):
        try:
            if os.path.getsize(path) > LARGEST:
                continue
            with open(path, encoding="utf-8", errors="ignore") as stream:
                text = stream.read()
        except OSError:
            continue
        if "lightning" in text and LIGHTNING_STRATEGY.search(text) is not None:
            return os.path.relpath(path, here)
    return ""


def _python(folder: str) -> Iterator[str]:
    for place, folders, names in islice(os.walk(folder), MOST_FOLDERS):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if name.endswith(PYTHON))
