"""Buffers that Muon's gathers go through, which DeepSpeed 0.19.8 keeps for later steps, up to 256 MiB in all.

runtime/zero/stage3.py:_partitioned_buffers_all_gather, runtime/zero/stage_1_and_2.py:_muon_all_gather_partitions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from zeroplan.costs.allocations import Allocation, AllocationTracker
from zeroplan.formulas import muon
from zeroplan.ledger import DTYPE_BYTES, Line, line

GATHER_BUFFERS = "gather buffers"
"""Their line: residents that come and go in the step."""
MOST_KEPT = 256 * 1024**2
"""Bytes (_muon_allgather_max_cached_bytes)."""
NONE: Mapping[Hashable, int] = {}


class GatherBuffers:
    """Elements of what this rank sends and of what all send, by what tells them apart; the oldest use first."""

    def __init__(self, tracker: AllocationTracker, dtype: str, kept: Mapping[Hashable, int] = NONE) -> None:
        self.tracker, self.dtype, self.kept = tracker, dtype, dict(kept)
        for elements in kept.values():
            tracker.allocate(*self.pair(elements))

    def pair(self, elements: int) -> Allocation:
        return muon.gathering, self.dtype, elements

    def take(self, key: Hashable, elements: int) -> bool:
        """Those that are kept, or new ones. Whether they will be kept: what is too large never is."""
        if key in self.kept:
            self.kept[key] = self.kept.pop(key)
            return True
        self.tracker.allocate(*self.pair(elements))
        fits = DTYPE_BYTES[self.dtype] * elements <= MOST_KEPT
        if fits:
            self.make_room(elements)
            self.kept[key] = elements
        return fits

    def make_room(self, elements: int) -> None:
        while self.kept and DTYPE_BYTES[self.dtype] * (sum(self.kept.values()) + elements) > MOST_KEPT:
            self.tracker.free(*self.pair(self.kept.pop(next(iter(self.kept)))))

    def gather(self, ranks: int, elements: int, *into: Allocation) -> None:
        """At stage 3: this rank's elements beside those of all, and then what comes of it; one rank gathers nothing."""
        size = (ranks + 1) * elements
        stays = ranks == 1 or self.take(elements, size)
        for copy in into:
            self.tracker.allocate(*copy)
        if not stays:
            self.tracker.free(*self.pair(size))


def lines(buffers: GatherBuffers) -> list[Line]:
    """What is held between steps."""
    size = DTYPE_BYTES[buffers.dtype] * sum(buffers.kept.values())
    return [line(GATHER_BUFFERS, muon.gather_buffers, buffers.dtype, size=size)] if size else []
