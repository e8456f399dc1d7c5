"""What the replay of stage 3's coordinator reports of a micro-step, in order. Sizes are elements."""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple


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


class GatheredTimeline(NamedTuple):
    """Elements gathered over a pass: columns, with a row for each hook that changes them, and for the first."""

    at: "array[int]"
    """The hook's number in its pass."""
    ready: "array[int]"
    """Gathered when gradients are ready of the module that ran before: its operators are done, it is not released."""
    most: "array[int]"
    """Most elements since the row before, with secondary partitions (hpZ)."""
    elements: "array[int]"
    """Gathered right after the hook."""
    secondary: "array[int]"
    """In secondary partitions right after it."""
    less: "array[int]"
    """By how many `most` may be fewer, where DeepSpeed waits for gathers in another order."""
    most_from_host: "array[int]"
    """`most` where partitions are copied from the host before they are gathered; likewise `less_from_host`."""
    less_from_host: "array[int]"

    @classmethod
    def of(cls, rows: Sequence[int]) -> "GatheredTimeline":
        """Columns of numbers that stand row after row."""
        return cls._make(array("q", rows[column :: len(cls._fields)]) for column in range(len(cls._fields)))

    @property
    def rows(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Row by row, as the columns stand above up to `secondary`."""
        return zip(self.at, self.ready, self.most, self.elements, self.secondary, strict=True)

    @property
    def from_host(self) -> "GatheredTimeline":
        """The timeline of a job with `offload_param`: partitions are copied to the GPU before they are gathered."""
        return self._replace(most=self.most_from_host, less=self.less_from_host)

    @property
    def fullest(self) -> int:
        """The row in which most is there."""
        return self.most.index(max(self.most))

    def is_within(self, other: "GatheredTimeline", more: int) -> bool:
        """Whether at no moment there are over `more` elements more than in the other, of a pass over the same hooks."""
        places = sorted({*self.at, *other.at})
        for mine, others in zip(self._at_each(places), other._at_each(places), strict=True):
            if mine[0] > others[0] + more or mine[1] > others[1] + more or mine[2] > others[2] + more:
                return False
        return True

    def _at_each(self, places: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Elements ready, at most and after each of these hooks, which are in order and among which all rows are."""
        row, after = 0, self.ready[0]
        for place in places:
            if row < len(self.at) and self.at[row] == place:
                after = self.elements[row] + self.secondary[row]
                yield self.ready[row], self.most[row], after
                row += 1
            else:
                yield after, after, after


class Flush(NamedTuple):
    """A bucket of gradients is reduced."""

    elements: int
    at: int
    """The hook of backward that comes next; END when none does."""


class MicroStep(NamedTuple):
    """What one forward and backward did, in order."""

    gathers: list[tuple[Any, ...]]
    """Plain rows of `calls`: a search keeps a hundred thousand, and Python's collector passes over plain tuples."""
    forward: GatheredTimeline
    backward: GatheredTimeline
    read: tuple[int, ...]
    """Partitions read from NVMe."""

    @property
    def from_host(self) -> "MicroStep":
        """The micro-step of a job with `offload_param`: the same gathers, and beside each the copied partitions."""
        return self._replace(forward=self.forward.from_host, backward=self.backward.from_host)

    @property
    def calls(self) -> Iterator[Gather]:
        """Gathers as they are issued."""
        return map(Gather._make, self.gathers)
