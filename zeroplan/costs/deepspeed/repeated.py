"""Gradients of alike layers at stage 3: where one layer's backward leaves the state of the one before, shifted by a
layer, those that follow leave it too, and are not replayed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.costs.deepspeed.events import Held
from zeroplan.costs.deepspeed.told import Part

if TYPE_CHECKING:
    from zeroplan.costs.deepspeed.partitioning import Partitioning


class Reached(NamedTuple):
    """After a layer: the state, how much was told so far, and how many gradients are to come."""

    state: Hashable
    told: int
    queue: int


class Repeated:
    """The layers of one part of a backward, in all of which the coordinator does the same."""

    def __init__(self, partitioning: Partitioning, part: Part[Held]) -> None:
        self.of, self.part = partitioning, part
        self.follows = part.times > 1 and not (partitioning.strategy.offload_optimizer or partitioning.in_leaves)
        self.left = part.times
        """Layers that are to come."""
        self.reached: Reached | None = None

    def next(self) -> Sequence[Held]:
        """Events of the next layer; none, once what the others do follows."""
        if self.follows and self.left < self.part.times and self._skip(self.part.times - self.left):
            return ()
        self.left -= 1
        return self.part.copy(self.part.times - self.left - 1)

    def _skip(self, layers: int) -> bool:
        """After so many layers: whether all others do as the last one did, which is told of them, the state shifted."""
        of = self.of
        before = self.reached
        now = self.reached = Reached(self._state(layers * self.part.by.tensors), len(of.told.open), len(of.queue))
        if before is None or before.state != now.state or not self._comes_alike(before, now):
            return False
        self._shift(before, now)
        self.left = 0
        return True

    def _state(self, shift: int) -> Hashable:
        of = self.of
        return (
            of.alive.bytes, tuple(of.alive.elements.values()), of.gathered, of.secondary,
            frozenset(index - shift for index in of.entered),
            frozenset(index - shift for index in of.apart),
            tuple(tuple(index - shift for index in bucket) for bucket in of.buckets.values()),
            tuple(of.filled.values()),
        )  # fmt: skip

    def _comes_alike(self, before: Reached, now: Reached) -> bool:
        """Whether the gradients of the layers to come are the last layer's, shifted by a layer at a time."""
        order, sizes, shift = self.of.order, self.of.sizes, self.part.by.tensors
        gradients = before.queue - now.queue
        start, count = len(order) - before.queue, gradients * (self.left + 1)
        known = order[start : start + count]
        return len(known) == count and all(
            one + shift == other and sizes[one] == sizes[other]
            for one, other in zip(known, known[gradients:], strict=False)
        )

    def _shift(self, before: Reached, now: Reached) -> None:
        of, layers = self.of, self.left
        of.told.again(before.told, layers, self.part.by)
        for _gradient in range((before.queue - now.queue) * layers):
            of.queue.popleft()
        by = layers * self.part.by.tensors
        of.entered = {index + by for index in of.entered}
        of.apart = {index + by for index in of.apart}
        of.buckets = {dtype: [index + by for index in bucket] for dtype, bucket in of.buckets.items()}
