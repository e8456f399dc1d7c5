"""What a replay has allocated: bytes by kind as events allocate and free them, and the largest moment so far."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from zeroplan.categories import Category
from zeroplan.ledger import DTYPE_BYTES, Line, line

Kind = tuple[Category, str]
"""What these elements are, and their dtype."""


Allocation = tuple[Category, str, int]
"""What it is, its dtype, and its elements."""


START, END = sys.maxsize, sys.maxsize - 1
"""Keys of the first and the last snapshot of a pass; the others are numbers of hooks, or ~tensor where one is ready."""


class Snapshots:
    """What a replay had allocated event by event, of one pass after the other: columns, with a row for each event."""

    def __init__(self) -> None:
        self.keys = array("q")
        self.most = array("q")
        """Bytes at most since the event before."""
        self.now = array("q")
        """Bytes after the event."""
        self.at_most: list[tuple[int, ...]] = []
        """Elements of each kind when most bytes were allocated, in the order of `AllocationTracker.elements`."""
        self.at_end: list[tuple[int, ...]] = []
        """And after the event."""

    def add(self, key: int, most: int, at_most: tuple[int, ...], now: int, at_end: tuple[int, ...]) -> None:
        """Add a row."""
        self.keys.append(key)
        self.most.append(most)
        self.now.append(now)
        self.at_most.append(at_most)
        self.at_end.append(at_end)

    @property
    def passes(self) -> list[range]:
        """The rows of each pass, from its start to the next one's."""
        starts = [row for row, key in enumerate(self.keys) if key == START]
        return [range(start, end) for start, end in pairwise([*starts, len(self.keys)])]


class AllocationTracker:
    """Elements allocated by kind; `peak` is what was allocated when most bytes were."""

    def __init__(self) -> None:
        self.elements: dict[Kind, int] = {}
        self.bytes = 0
        self.most = 0
        self.peak: dict[Kind, int] = {}
        self.snapshots = Snapshots()
        self.since = 0
        """The most bytes since the last snapshot, and what they were."""
        self.at_most: tuple[int, ...] = ()

    def allocate(self, rule: Category, dtype: str, elements: int) -> None:
        kind = rule, dtype
        self.elements[kind] = self.elements.get(kind, 0) + elements
        self.bytes += DTYPE_BYTES[dtype] * elements
        if self.bytes > self.since:
            self._see()

    def _see(self) -> None:
        """More is allocated than since the last snapshot."""
        self.since, self.at_most = self.bytes, tuple(self.elements.values())
        if self.bytes > self.most:
            self.most, self.peak = self.bytes, self.elements.copy()

    def mark(self, key: int) -> None:
        """An event of the pass is over."""
        now = tuple(self.elements.values())
        self.snapshots.add(key, self.since, self.at_most, self.bytes, now)
        self.since, self.at_most = self.bytes, now

    def kinds(self, elements: tuple[int, ...]) -> dict[Kind, int]:
        """A snapshot's elements by kind."""
        return dict(zip(self.elements, elements, strict=False))

    def free(self, rule: Category, dtype: str, elements: int) -> None:
        kind = rule, dtype
        self.elements[kind] = self.elements.get(kind, 0) - elements
        self.bytes -= DTYPE_BYTES[dtype] * elements

    @contextmanager
    def transient(self, *made: Allocation) -> Iterator[None]:
        """Transient allocations: made in this order, freed together."""
        for rule, dtype, elements in made:
            self.allocate(rule, dtype, elements)
        yield
        for rule, dtype, elements in made:
            self.free(rule, dtype, elements)

    def transient_peak(self, *made: Allocation) -> None:
        """Transient allocations that are freed before anything else happens."""
        before, known = self.bytes, self.elements
        most = before
        for _rule, dtype, count in made:
            most += DTYPE_BYTES[dtype] * count
        if most <= self.since:
            return
        for rule, dtype, count in made:
            known[rule, dtype] = known.get((rule, dtype), 0) + count
        self.bytes = most
        self._see()
        for rule, dtype, count in made:
            known[rule, dtype] -= count
        self.bytes = before

    def reset_peak(self) -> None:
        """Forget the peak: from now on only later moments count."""
        self.most, self.peak = self.bytes, self.elements.copy()
        self.since, self.at_most = self.bytes, tuple(self.elements.values())

    def lines(self) -> tuple[Line, ...]:
        """What is allocated now."""
        return as_lines(self.elements)

    def peak_lines(self) -> tuple[Line, ...]:
        return as_lines(self.peak)


class PassProfile:
    """The snapshots of a pass, and the kinds they count; `concurrent` is there throughout."""

    def __init__(self, tracker: AllocationTracker, beside: Iterable[Line] = ()) -> None:
        self.snapshots, self.tracker, self.concurrent = tracker.snapshots, tracker, tuple(beside)


class Variables:
    """A function's own names: given something else, what a name stood for goes after that is made."""

    def __init__(self, tracker: AllocationTracker) -> None:
        self.tracker = tracker
        self.allocations: dict[str, tuple[Allocation, ...]] = {}

    def put(self, name: str, *made: Allocation) -> None:
        for copy in made:
            self.tracker.allocate(*copy)
        self._free(name)
        self.allocations[name] = made

    def rename(self, name: str, other: str) -> None:
        """What `name` stands for is called `other`, and what that stood for goes."""
        self._free(other)
        self.allocations[other] = self.allocations.pop(name)

    def leave(self) -> None:
        """The function returns."""
        for name in list(self.allocations):
            self._free(name)

    def _free(self, name: str) -> None:
        for copy in self.allocations.pop(name, ()):
            self.tracker.free(*copy)


def as_lines(elements: dict[Kind, int]) -> tuple[Line, ...]:
    """One line for each kind, named as its category is."""
    return tuple(
        line(rule.name, rule, dtype, alive=count, w=DTYPE_BYTES[dtype])
        for (rule, dtype), count in elements.items()
        if count
    )
