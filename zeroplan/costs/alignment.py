"""DeepSpeed's events along a pass of the model: the interval each falls into, and of identical layers' those that
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zeroplan.costs.deepspeed.allocation_tracker import END, START
from zeroplan.costs.deepspeed.events import RepeatedBlock, offset_key
from zeroplan.specs.execution import PassTimeline

Met = tuple[Any, int, int]
"""An event, the interval that was reached before it, and the one at whose end it falls, which may be the same. Of those
that come again, the event as it comes the first time."""


def interval_of(key: int, activations: PassTimeline, at: int) -> int:
    """The interval at whose end DeepSpeed's event falls; `at`: the one that was reached, where nothing tells."""
    if key == END:
        return len(activations.most) - 1
    if key == START:
        return at
    return activations.ready.get(~key, at) if key < 0 else activations.hooks[key]


def aligned_events(
    blocks: Sequence[RepeatedBlock[Any]], activations: PassTimeline, key: Callable[[Any], int]
) -> Iterator[Met]:
    """The events among which a largest moment is: all, but of a part that comes many times only some.

    From one time to the next DeepSpeed has the same, and the model one layer more, or less. What they have together
    rises or falls by the same amount then, so it is largest in the first or in the last; what lies between events may
    differ in the first two, which something else comes before, and in the last, whose layer is no other's like.
    """
    at = here = -1
    for block in blocks:
        keys = [key(event) for event in block.events]
        skipped = _skipped(block, keys, activations)
        numbers = (0, 1, 2, block.times - 2, block.times - 1) if skipped else range(block.times)
        for number in numbers:
            if skipped and number == block.times - 2:
                at = max(at, here + skipped)
            by, here = block.offset.times(number), -1
            for event, first in zip(block.events, keys, strict=True):
                to = interval_of(offset_key(first, by) if number else first, activations, at)
                yield event, at, to
                if to > at:  # noqa: PLR1730  (the call takes as long as all else here)
                    at = to
                if to > here:  # noqa: PLR1730
                    here = to


FEW = 6
"""Times up to which none is left out."""


def _skipped(block: RepeatedBlock[Any], keys: Sequence[int], activations: PassTimeline) -> int:
    """Intervals between the third time and the last but one, where all from the second to that are of identical
    layers.
    """
    if block.times < FEW:
        return 0
    second, third, last = (
        [interval_of(offset_key(key, block.offset.times(number)), activations, -1) for key in keys]
        for number in (1, 2, block.times - 2)
    )
    for start, intervals, layers in activations.identical_layers:
        inside = start <= min(second) and max(last) < start + intervals * layers
        by = {(after - first, end - first) for first, after, end in zip(second, third, last, strict=True)}
        if inside and by == {(intervals, (block.times - 3) * intervals)}:
            return (block.times - 5) * intervals
    return 0
