"""What of each card is kept free: a share of its memory, or bytes."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.units import gib


class Headroom(NamedTuple):
    share: float = 0.0
    bytes: int | None = None
    """None: the share counts."""

    def of(self, capacity: int) -> int:
        """Bytes of a card with this capacity."""
        return capacity - int(capacity * (1 - self.reserve(capacity)))

    def reserve(self, capacity: int) -> float:
        """As a share of a capacity; half a byte less than stated bytes, so that rounding down leaves exactly them."""
        return self.share if self.bytes is None else max(0.0, (self.bytes - 0.5) / capacity)

    def __str__(self) -> str:
        return f"{100 * self.share:.6g}%" if self.bytes is None else gib(self.bytes)
