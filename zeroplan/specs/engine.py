"""Which program trains."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.sources import DEEPSPEED


class EngineVersion(NamedTuple):
    """One version of a training engine."""

    name: str = "deepspeed"
    version: str = DEEPSPEED
