"""The log of a run: when storages are allocated, saved for backward and freed, and so what is allocated at a moment."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

FORWARD, BACKWARD, RECOMPUTING = "forward", "backward", "recomputing"
MADE, KEPT, FREED, EVENT = range(4)
"""A storage's number, bytes, phase and layer; its number, the operator that keeps it, the module that this runs in and
its place in the sequence; its number; bytes given away at the end of an interval, and the layer it lies in."""
WORKSPACE = "FlashAttnWorkspace"
"""The operator by which what the flash-attention package's kernels make for themselves is logged as kept."""
Log = list[tuple[Any, ...]]


class AllocationSource(NamedTuple):
    """Where an allocation comes from: saved by an operator for its backward or not, made in which phase and layer."""

    kept_by: str
    """The first, if there are several."""
    phase: str
    layer: int


def allocated(log: Sequence[tuple[Any, ...]], interval: int, size: int | None = None) -> Counter[AllocationSource]:
    """Bytes by what they are, once the interval has `size` alive, or at its end; empty if it never has."""
    storages: dict[int, tuple[int, str, int]] = {}
    keeper: dict[int, str] = {}
    given: Counter[AllocationSource] = Counter()
    live = events = 0
    for what, key, *of in log:
        if what == MADE:
            storages[key] = (of[0], of[1], of[2])
            live += of[0]
            if live == size and events == interval:
                break
        elif what == KEPT:
            keeper.setdefault(key, of[0])
        elif what == FREED:
            live -= storages.pop(key)[0]
        else:
            if events == interval and size in (None, live - key):
                given[AllocationSource("", BACKWARD, of[0])] -= key
                break
            events += 1
    else:
        return Counter()
    for number, (size_of, phase, layer) in storages.items():
        given[AllocationSource(keeper.get(number, ""), phase, layer)] += size_of
    return given
