"""Replay of the swapper of NVMe parameters: which partitions are read, and when its buffers run out.

It follows runtime/swap_tensor/partitioned_param_swapper.py and partitioned_param_coordinator.py of DeepSpeed 0.19.8
(__prefetch_nvme_param_partitions): a partition that has been read keeps its buffer until its tensor is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class OutOfBuffersError(Exception):
    """DeepSpeed stops: more partitions are to be read than buffers are free, or one twice at once."""


class Swapper:
    """Partitions of one rank: on NVMe, or in a buffer."""

    def __init__(self, swapped: frozenset[int], buffers: int) -> None:
        """`swapped`: tensors whose partitions live on NVMe."""
        self.swapped, self.free = swapped, buffers
        self.here: set[int] = set()
        self.read: list[int] = []

    def absent(self, index: int) -> bool:
        return index in self.swapped and index not in self.here

    def fetch(self, tensors: Iterable[int]) -> None:
        """Read what a gather misses."""
        self._read([index for index in tensors if self.absent(index)])

    def fetch_ahead(self, queue: Iterable[int], sizes: Sequence[int], flying: int) -> None:
        """Read for the next gathers: twice the elements that are being gathered, while buffers are free."""
        chosen: list[int] = []
        considered = 0
        for index in queue:
            if considered > 2 * flying or len(chosen) >= self.free:
                break
            if self.absent(index):
                chosen.append(index)
            considered += sizes[index]
        self._read(chosen)

    def release(self, index: int) -> None:
        if index in self.here:
            self.here.discard(index)
            self.free += 1

    def _read(self, tensors: list[int]) -> None:
        if len(tensors) > self.free or len(set(tensors)) < len(tensors):
            raise OutOfBuffersError
        self.here.update(tensors)
        self.free -= len(tensors)
        self.read += tensors
