"""What a calibration found: figures of a node's file, observations beside them, and what was left out."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple


class Measurement(NamedTuple):
    """One figure of a node's file."""

    field: str
    """Its key in the node's file."""
    value: float
    """The number, in that unit."""
    unit: str
    """B, B/s, FLOP/s, /s or s."""
    how: str
    """How it was measured, with versions."""


class Findings:
    """What was measured of one machine."""

    def __init__(self) -> None:
        self.figures: list[Measurement] = []
        self.observations: list[str] = []
        """Rates by shape and size, for people."""
        self.left_out: list[str] = []
        self.gpu: str | None = None
        """The card's preset."""
        self.gpus_per_node: int | None = None

    def add(self, field: str, value: float, unit: str, how: str) -> None:
        self.figures.append(Measurement(field, value, unit, how))


def timed(action: Callable[[], object], wait: Callable[[], object], *, seconds: float, least: int = 3) -> float:
    """Median seconds of an action, repeated until `seconds` have passed; `wait` returns when its work is done."""
    action()
    wait()
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while len(durations) < least or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        wait()
        durations.append(time.perf_counter() - start)
    return median(durations)
