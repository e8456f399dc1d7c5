"""What the replay of stage 3's coordinator reports of a micro-step, in order. Sizes are elements.

The event log of a replay, in order: of identical layers that did the same the events of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

from zeroplan.specs.execution import ModuleHook


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

    def offset_by(self, by: LayerOffset) -> Gather:
        """As `Repeatable`."""
        tensors, elements, ranks, low_precision, joined, pass_index, at = self
        later = tuple([index + by.tensors for index in tensors])
        return Gather(later, elements, ranks, low_precision, joined, pass_index, at + by.hooks)


class GatheredMemory(NamedTuple):
    """Elements alive right after a hook: gathered, and in secondary partitions (hpZ)."""

    elements: int
    secondary: int
    most: int
    """Most elements of both together, since the hook before."""
    ready: int
    """Gathered when gradients are ready of the module that ran before: its operators are done, it is not released."""
    hook: ModuleHook
    at: int
    """The hook's number in its pass."""
    less: int = 0
    """By how many `most` may be fewer, where DeepSpeed waits for gathers in another order."""

    def offset_by(self, by: LayerOffset) -> GatheredMemory:
        """As `Repeatable`."""
        elements, secondary, most, ready, (enters, module, tensors, backward), at, less = self
        hook = ModuleHook(enters, module + by.modules, tuple([index + by.tensors for index in tensors]), backward)
        more = sum(by.more)  # persistent parameters that came with their layer, or what autograd keeps of it
        return GatheredMemory(elements + more, secondary, most + more, ready + more, hook, at + by.hooks, less)


class Flush(NamedTuple):
    """A bucket of gradients is reduced."""

    elements: int
    at: int
    """The hook of backward that comes next; END when none does."""


class MicroStep(NamedTuple):
    """What one forward and backward did, each block in order."""

    gathers: tuple[RepeatedBlock[Gather], ...]
    forward: tuple[RepeatedBlock[GatheredMemory], ...]
    """After each hook that uses tensors or changes what is held."""
    backward: tuple[RepeatedBlock[GatheredMemory], ...]
    read: tuple[int, ...]
    """Partitions read from NVMe."""


class LayerOffset(NamedTuple):
    """Offset from a layer to the next that does the same: in hooks of the pass, numbers of tensors and of modules."""

    hooks: int = 0
    tensors: int = 0
    modules: int = 0
    more: tuple[int, ...] = ()
    """What the layer left behind, which is there besides; of what, the event says. Empty for nothing."""

    def times(self, count: int) -> LayerOffset:
        more = tuple([count * each for each in self.more]) if self.more else ()
        return LayerOffset(count * self.hooks, count * self.tensors, count * self.modules, more)


NO_OFFSET = LayerOffset()


def offset_key(key: int, by: LayerOffset) -> int:
    """The key of the same event in another layer: the number of its hook, or ~tensor where it is a tensor's."""
    return key + by.hooks if key >= 0 else key - by.tensors


class Repeatable(Protocol):
    """An event of a replay's log."""

    def offset_by(self, by: LayerOffset) -> Self:
        """The same event of a layer that lies so far away."""


T = TypeVar("T", bound=Repeatable)


class RepeatedBlock(NamedTuple, Generic[T]):
    """Events in order, which come so many times, each time for another layer."""

    events: Sequence[T]
    times: int = 1
    offset: LayerOffset = NO_OFFSET

    def copy(self, number: int) -> Sequence[T]:
        """The events as they come that time, from 0 on."""
        by = self.offset.times(number)
        return [event.offset_by(by) for event in self.events] if number else self.events


def all_events(blocks: Sequence[RepeatedBlock[T]]) -> Iterator[T]:
    """All events, written out."""
    for block in blocks:
        for number in range(block.times):
            yield from block.copy(number)


def counted_events(blocks: Iterable[RepeatedBlock[T]]) -> Iterator[tuple[T, int]]:
    """Those that come again are here once, with how often they come."""
    for block in blocks:
        for event in block.events:
            yield event, block.times


def distinct_events(blocks: Iterable[RepeatedBlock[T]]) -> Iterator[T]:
    """Those that come again are here once: for what does not depend on the layer."""
    for event, _times in counted_events(blocks):
        yield event


def last_event(blocks: Sequence[RepeatedBlock[T]]) -> T:
    """The last event."""
    return blocks[-1].copy(blocks[-1].times - 1)[-1]


def extreme_events(blocks: Iterable[RepeatedBlock[T]]) -> Iterator[T]:
    """Those among which a largest is: as they come the first time, and the last where more is there each time."""
    for block in blocks:
        yield from block.events
        if block.offset.more:
            yield from block.copy(block.times - 1)


class EventLog(Generic[T]):
    """Repeated blocks, as a replay adds to them."""

    def __init__(self) -> None:
        self.done: list[RepeatedBlock[T]] = []
        self.open: list[T] = []
        """Events since the last block."""

    def close(self) -> None:
        if self.open:
            self.done.append(RepeatedBlock(self.open))
            self.open = []

    def repeat(self, since: int, times: int, by: LayerOffset) -> None:
        """The open events from that one on come so many times more."""
        last, self.open = self.open[since:], self.open[:since]
        self.close()
        if last:
            self.done.append(RepeatedBlock(last, times + 1, by))

    def blocks(self) -> tuple[RepeatedBlock[T], ...]:
        """So far."""
        return (*self.done, RepeatedBlock(tuple(self.open))) if self.open else tuple(self.done)
