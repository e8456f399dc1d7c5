"""What the replay of stage 3's coordinator reports of a micro-step, in order. Sizes are elements."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.specs.model import Visit


class Gather(NamedTuple):
    """One call: its tensors, the elements it gathers, each tensor padded to all ranks, and its own ranks."""

    tensors: tuple[int, ...]
    elements: int
    ranks: int
    low: bool
    """In fewer bytes than the weights have: linear layers under autocast, or quantized ones."""
    joined: bool
    """An all-reduce (stage3_use_all_reduce_for_fetch_params): of several tensors, from their own partitions."""
    again: int
    """The pass in which it is issued: 0 forward, 1 backward; and the visit of that pass."""
    at: int


class Held(NamedTuple):
    """Elements alive right after a visit: gathered, and in secondary partitions (hpZ)."""

    elements: int
    secondary: int
    most: int
    """Of both together, since the visit before."""
    ready: int
    """Gathered when gradients are ready of the module that ran before: its operators are done, it is not released."""
    visit: Visit
    at: int
    """The visit's number in its pass."""


class Flush(NamedTuple):
    """A bucket of gradients is reduced."""

    elements: int
    at: int
    """The visit of backward that comes next; END when none does."""


class Repeat(NamedTuple):
    """Events of a pass that come again and again, for one alike layer after the other."""

    start: int
    """Number of the first event, and how many a layer has; all layers' lie one after the other."""
    events: int
    layers: int
    visits: int
    """How many visits a layer has in the pass, and by how much its tensors' numbers differ from the layer's before."""
    shift: int


class MicroStep(NamedTuple):
    """What one forward and backward did, each part in order."""

    gathers: tuple[Gather, ...]
    forward: tuple[Held, ...]
    """After each visit that uses tensors or changes what is held."""
    backward: tuple[Held, ...]
    read: tuple[int, ...]
    """Partitions read from NVMe."""
    repeats: tuple[Repeat, ...] = ()
    """In backward."""
