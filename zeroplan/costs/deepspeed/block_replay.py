"""Gradients of identical layers at stage 3: where one layer's backward leaves the state of the one before, shifted by a
layer, those that follow leave it too, and are not replayed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.costs.deepspeed.events import GatheredMemory, LayerOffset, RepeatedBlock
from zeroplan.costs.deepspeed.resident import DTYPE_BYTES
from zeroplan.formulas import gathered

if TYPE_CHECKING:
    from zeroplan.costs.deepspeed.stage_3_backward import Stage3Backward


NORMS = gathered.norms, "float64"
"""Norms of offloaded gradients: they stay until the step, and nothing depends on how many there are."""


class LayerState(NamedTuple):
    """After a layer: the state, how many norms there are, how long the log is, how many gradients are to come."""

    state: Hashable
    norms: int
    logged: int
    queue: int


class BlockReplay:
    """The layers of one block of a backward, in all of which the coordinator does the same."""

    def __init__(self, backward: Stage3Backward, block: RepeatedBlock[GatheredMemory], *, follows: bool) -> None:
        self.backward, self.block = backward, block
        self.follows = follows and block.times > 1 and not (block.offset.more or backward.in_leaves)
        self.left = block.times
        """Layers that are to come."""
        self.reached: LayerState | None = None

    def next(self) -> Sequence[GatheredMemory]:
        """Events of the next layer; none, once what the others do follows."""
        if self.follows and self.left < self.block.times and self._skip(self.block.times - self.left):
            return ()
        self.left -= 1
        return self.block.copy(self.block.times - self.left - 1)

    def _skip(self, layers: int) -> bool:
        """After so many layers: whether all others do as the last one did, which is then logged, the state offset."""
        backward = self.backward
        before = self.reached
        norms = backward.tracker.elements.get(NORMS, 0)
        state = self._state(layers * self.block.offset.tensors, norms)
        now = self.reached = LayerState(state, norms, len(backward.log.open), len(backward.queue))
        if before is None or before.state != now.state or not self._gradients_repeat(before, now):
            return False
        self._shift(before, now)
        self.left = 0
        return True

    def _state(self, shift: int, norms: int) -> Hashable:
        backward = self.backward
        return (
            backward.tracker.bytes - DTYPE_BYTES[NORMS[1]] * norms,
            tuple((kind, count) for kind, count in backward.tracker.elements.items() if kind != NORMS),
            backward.gathered, backward.secondary,
            frozenset(index - shift for index in backward.entered),
            frozenset(index - shift for index in backward.apart),
            tuple(tuple(index - shift for index in bucket) for bucket in backward.buckets.values()),
            tuple(backward.filled.values()),
        )  # fmt: skip

    def _gradients_repeat(self, before: LayerState, now: LayerState) -> bool:
        """Whether the gradients of the layers to come are the last layer's, shifted by a layer at a time."""
        backward, shift = self.backward, self.block.offset.tensors
        order, sizes, swapped, on_gpu = backward.order, backward.sizes, backward.swapped, backward.left_on_gpu
        gradients = before.queue - now.queue
        start, count = len(order) - before.queue, gradients * (self.left + 1)
        known = order[start : start + count]
        return len(known) == count and all(
            one + shift == other and sizes[one] == sizes[other] and backward.dtypes[one] == backward.dtypes[other]
            and (one in swapped, one in on_gpu) == (other in swapped, other in on_gpu)
            for one, other in zip(known, known[gradients:], strict=False)
        )

    def _shift(self, before: LayerState, now: LayerState) -> None:
        backward, layers, norms = self.backward, self.left, now.norms - before.norms
        backward.repeat(before.logged, layers, self._with(norms) if norms else self.block.offset)
        for _gradient in range((before.queue - now.queue) * layers):
            backward.queue.popleft()
        by = layers * self.block.offset.tensors
        backward.entered = {index + by for index in backward.entered}
        backward.apart = {index + by for index in backward.apart}
        backward.buckets = {dtype: [index + by for index in bucket] for dtype, bucket in backward.buckets.items()}

    def _with(self, norms: int) -> LayerOffset:
        """A layer farther, so many norms more."""
        elements = [norms if kind == NORMS else 0 for kind in self.backward.tracker.elements]
        return self.block.offset._replace(more=(DTYPE_BYTES[NORMS[1]] * norms, *elements))
