"""What the replay of stage 3's coordinator reports of a micro-step, in order. Sizes are elements."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.specs.model import Visit


class Gather(NamedTuple):
    """One all-gather: its tensors, and the elements it gathers, each tensor padded to the ranks."""

    tensors: tuple[int, ...]
    elements: int
    backward: bool


class Read(NamedTuple):
    """Partitions that a micro-step reads from NVMe."""

    tensors: tuple[int, ...]


class Held(NamedTuple):
    """Gathered elements alive right after a visit, and at most since the one before."""

    elements: int
    most: int
    ready: int
    """When the gradients are ready of the module that ran before: its operators are done, it is not released yet."""
    visit: Visit
    backward: bool


Event = Gather | Read | Held
