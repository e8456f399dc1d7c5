"""The findings of a config in which other code, or another file, decides some values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from zeroplan.check.check import check
from zeroplan.check.document import Document
from zeroplan.check.finding import Finding
from zeroplan.check.rules import names, values
from zeroplan.check.setting import TRAINER, Setting

OF_ONE_KEY = frozenset(rule.id for room in (names, values) for rule in room.RULES)
"""Rules that one key and its value are enough for."""
KEYS_SHOWN = 3


def alone(document: Document, setting: Setting, made: Callable[[Document, Setting, Any], Setting]) -> list[Finding]:
    """What one key and its value are enough for, of a config in which something else decides others."""
    setting = replace(setting, reader=TRAINER, reader_is_known=True)  # who fills in the "auto" that stands for them
    return [one for one in check(document, made(document, setting, None)) if one.rule in OF_ONE_KEY]


def decided(by: str, unknown: Sequence[tuple[int, str]]) -> str:
    keys = [*(path for _, path in unknown[:KEYS_SHOWN]), *["..."] * (len(unknown) > KEYS_SHOWN)]
    return f"{by} decides {', '.join(keys)}: names and values are checked alone"
