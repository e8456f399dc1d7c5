"""Gradients of alike layers at stage 3: where one layer's backward leaves the state of the one before, shifted by a
layer, those that follow leave it too, and are not replayed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.costs.deepspeed.events import Repeat

if TYPE_CHECKING:
    from zeroplan.costs.deepspeed.partitioning import Partitioning


class Reached(NamedTuple):
    """After a layer: the state, how much was reported so far, and how many gradients are to come."""

    state: Hashable
    reported: int
    queue: int


class Repeated:
    """Of one backward, the stretches in which the coordinator does the same for layer after layer."""

    def __init__(self, partitioning: Partitioning, repeats: Sequence[Repeat]) -> None:
        self.of = partitioning
        self.ends = {
            repeat.start + layer * repeat.events - 1: (repeat, layer)
            for repeat in repeats
            for layer in range(1, repeat.layers)
        }
        """Number of each layer's last event, and which of the repeat's layers it is, the first being 1."""
        self.reached: Reached | None = None

    def skip(self, number: int) -> int:
        """After the event of this number: how many more are done, their entries added and the state shifted."""
        if number not in self.ends:
            return 0
        (repeat, layer), of = self.ends[number], self.of
        state = self._state(layer * repeat.shift)
        before = self.reached if layer > 1 else None
        now = self.reached = Reached(state, len(of.reported), len(of.queue))
        left = repeat.layers - layer
        if before is None or before.state != now.state or not self._comes_alike(before, now, left, repeat.shift):
            return 0
        self._shift(before, now, left, repeat)
        return left * repeat.events

    def _state(self, shift: int) -> Hashable:
        of = self.of
        return (
            of.alive.bytes, tuple(of.alive.elements.values()), of.gathered, of.secondary,
            frozenset(index - shift for index in of.entered),
            frozenset(index - shift for index in of.apart),
            tuple(tuple(index - shift for index in bucket) for bucket in of.buckets.values()),
            tuple(of.filled.values()),
        )  # fmt: skip

    def _comes_alike(self, before: Reached, now: Reached, layers: int, shift: int) -> bool:
        """Whether the gradients of the layers to come are the last layer's, shifted by a layer at a time."""
        order, sizes = self.of.order, self.of.sizes
        gradients = before.queue - now.queue
        start = len(order) - before.queue
        known = order[start : start + gradients * (layers + 1)]
        return len(known) == gradients * (layers + 1) and all(
            one + shift == other and sizes[one] == sizes[other]
            for one, other in zip(known, known[gradients:], strict=False)
        )

    def _shift(self, before: Reached, now: Reached, layers: int, repeat: Repeat) -> None:
        of = self.of
        since = of.reported[before.reported :]
        for layer in range(1, layers + 1):
            of.reported += of.later(since, layer * repeat.visits, layer * repeat.shift)
        for _gradient in range((before.queue - now.queue) * layers):
            of.queue.popleft()
        by = layers * repeat.shift
        of.entered = {index + by for index in of.entered}
        of.apart = {index + by for index in of.apart}
        of.buckets = {dtype: [index + by for index in bucket] for dtype, bucket in of.buckets.items()}
