"""A trace for any number of sequences, from one run with very many.

Every storage of a step has some bytes of its own and some for each sequence. A run with `MANY` sequences tells the two
apart, as its bytes divided by `MANY` and the rest; from two sequences on every run makes the same storages in the same
order.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import NamedTuple

from zeroplan.architectures.trace import Trace, kept_by_layer
from zeroplan.autograd.log import EVENT, FREED, KEPT, MADE, Log

MANY = 1 << 60
"""More sequences than bytes that do not depend on them."""


class LogColumns(NamedTuple):
    """What happened to storages, and the bytes of it: those of its own, and those of each sequence."""

    what: array[int]
    own: array[int]
    each: array[int]


class BatchScaledTrace(NamedTuple):
    """A run with `MANY` sequences."""

    trace: Trace
    ran: set[int]
    """Layers that ran, by identity."""
    events: LogColumns

    def at(self, batch: int) -> Trace:
        """The trace with so many sequences."""
        trace = self.trace
        most, now = _levels(self.events, batch)
        middle = len(trace.forward.kinds)
        forward = trace.forward._replace(max_allocated=most[:middle], allocated=now[:middle])
        backward = trace.backward._replace(max_allocated=most[middle:], allocated=now[middle:])
        drops = {layer: scaled_to(size, batch) for layer, size in trace.drops.items()}
        keeps = kept_by_layer(forward, self.ran)
        return Trace(forward, backward, keeps, drops, lambda: self._log(batch), now[middle - 1], self.flops(batch), {})

    def flops(self, batch: int) -> Counter[tuple[str, int, bool]]:
        """As `Trace` has them, with so many sequences."""
        return Counter({key: scaled_to(count, batch) for key, count in self.trace.flops.items()})

    def _log(self, batch: int) -> Log:
        """What was made, kept and freed, with its bytes."""
        places = {MADE: 2, EVENT: 1}
        return [
            (*entry[:at], scaled_to(entry[at], batch), *entry[at + 1 :]) if (at := places.get(entry[0])) else entry
            for entry in self.trace.log()
        ]


def scaled_to(bytes_of_many: int, batch: int) -> int:
    """With so many sequences, what has so many bytes with `MANY`."""
    each, own = divmod(bytes_of_many, MANY)
    return own + each * batch


def batch_scaled(trace: Trace) -> BatchScaledTrace:
    """For any number of sequences, a trace with `MANY`."""
    storages: dict[int, tuple[int, int]] = {}
    kinds, owns, eaches = (list[int]() for _column in LogColumns._fields)
    for entry in trace.log():
        what = entry[0]
        if what == KEPT:
            continue
        if what == MADE:
            each, own = storages[entry[1]] = divmod(entry[2], MANY)
        else:
            each, own = storages.pop(entry[1]) if what == FREED else divmod(entry[1], MANY)
        kinds.append(what)
        owns.append(own)
        eaches.append(each)
    ran = set(trace.forward.layers) - {0}
    return BatchScaledTrace(trace, ran, LogColumns(array("b", kinds), array("q", owns), array("q", eaches)))


def _levels(events: LogColumns, batch: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes allocated at most in each interval and at its end, as `Memory` counts them."""
    at_most: list[int] = []
    at_end: list[int] = []
    live = most = 0
    for what, own, each in zip(*events, strict=True):
        size = own + each * batch
        if what == MADE:
            live += size
            if live > most:  # noqa: PLR1730  (thousands of times for each batch)
                most = live
        elif what == FREED:
            live -= size
        else:
            now = live - size
            at_most.append(most)
            at_end.append(now)
            most = now
    return tuple(at_most), tuple(at_end)
