"""Visits of a walk: those of a layer like one before are written out when somebody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from zeroplan.specs.execution import Visit

VISIT = partial(tuple.__new__, Visit)
"""A visit of its four fields, without the work that a call by name does."""


class LayerVisits:
    """What one pass through a layer visits, field by field."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self.size = len(visits)
        self.enters = [visit.enters for visit in visits]
        self.modules = [visit.module for visit in visits]
        self.tensors = [visit.tensors for visit in visits]
        self.late = [visit.backward for visit in visits]
        self.reads = set(self.tensors)

    def moved(self, modules: int, tensors: int) -> Iterator[Visit]:
        """Of a layer like it, whose modules and tensors have numbers so much higher."""
        theirs = {read: tuple([index + tensors for index in read]) for read in self.reads}
        moved = map(modules.__add__, self.modules), map(theirs.__getitem__, self.tensors)
        return map(VISIT, zip(self.enters, *moved, self.late, strict=True))


class Visits:
    """Visits one after the other, as a walk adds to them."""

    def __init__(self) -> None:
        self.size = 0
        self.known: list[Visit] = []
        """Written out, and what comes after them: layers like another, then visits."""
        self.layers: list[tuple[LayerVisits, int, int]] = []
        self.last: list[Visit] = []

    def __len__(self) -> int:
        return self.size

    def add(self, *visits: Visit) -> None:
        self.last += visits
        self.size += len(visits)

    def follow(self, like: LayerVisits, modules: int, tensors: int) -> None:
        """Those of a layer like one before, see `LayerVisits.moved`."""
        if self.last:
            self.every()
        self.layers.append((like, modules, tensors))
        self.size += like.size

    def since(self, start: int) -> list[Visit]:
        """From that number on."""
        first = self.size - len(self.last)
        return self.last[start - first :] if start >= first else self.every()[start:]

    def every(self) -> list[Visit]:
        """All of them."""
        for like, modules, tensors in self.layers:
            self.known += like.moved(modules, tensors)
        self.known += self.last
        self.layers, self.last = [], []
        return self.known
