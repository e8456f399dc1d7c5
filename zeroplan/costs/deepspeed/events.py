"""What the replay of stage 3's coordinator reports of a micro-step, in order. Sizes are elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Gather(NamedTuple):
    """One call: its tensors, the elements it gathers, each tensor padded to all ranks, and its own ranks."""

    tensors: tuple[int, ...]
    elements: int
    ranks: int
    low_precision: bool
    """In fewer bytes than the weights have: linear layers under autocast, or quantized ones."""
    joined: bool
    """An all-reduce (stage3_use_all_reduce_for_fetch_params): of several tensors, from their own partitions."""
    pass_index: int
    """The pass in which it is issued: 0 forward, 1 backward; and the hook of that pass."""
    at: int


class GatheredMemory(NamedTuple):
    """Elements alive right after a hook: gathered, and in secondary partitions (hpZ)."""

    elements: int
    secondary: int
    most: int
    """Most elements of both together, since the event before."""
    ready: int
    """Gathered when gradients are ready of the module that ran before: its operators are done, it is not released."""
    at: int
    """The hook's number in its pass."""
    less: int = 0
    """By how many `most` may be fewer, where DeepSpeed waits for gathers in another order."""


class Flush(NamedTuple):
    """A bucket of gradients is reduced."""

    elements: int
    at: int
    """The hook of backward that comes next; END when none does."""


class MicroStep(NamedTuple):
    """What one forward and backward did, in order."""

    gathers: tuple[Gather, ...]
    forward: tuple[GatheredMemory, ...]
    """After each hook that changes what is held, and the first and the last that use tensors."""
    backward: tuple[GatheredMemory, ...]
    read: tuple[int, ...]
    """Partitions read from NVMe."""


def is_within(one: Sequence[GatheredMemory], other: Sequence[GatheredMemory], more: int) -> bool:
    """Whether one pass has at no moment over `more` elements more than the other, over the same hooks."""
    events, others = ({event.at: event for event in log} for log in (one, other))
    here = there = 0
    for at in sorted(events.keys() | others.keys()):
        event, against = events.get(at), others.get(at)
        ready, most, after = (event.ready, event.most, event.elements + event.secondary) if event else (here,) * 3
        allowed = (against.ready, against.most, against.elements + against.secondary) if against else (there,) * 3
        here, there = after, allowed[2]
        if ready > allowed[0] + more or most > allowed[1] + more or after > allowed[2] + more:
            return False
    return True
