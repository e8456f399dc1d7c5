"""What the replay of stage 3's coordinator reports of a micro-step, in order. Sizes are elements."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.deepspeed.event_log import LayerOffset, RepeatedBlock
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
