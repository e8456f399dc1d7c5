"""Tensors without numbers: a storage of so many bytes, and shape and strides over it as torch would have them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from zeroplan.autograd.memory import Memory, Shaped

if TYPE_CHECKING:
    from zeroplan.autograd.graph import Node

Sizes = tuple[int, ...]


class Storage:
    """So many bytes, from now until nothing refers to them."""

    __slots__ = ("__weakref__", "bytes", "kept_by", "layer", "memory", "phase")

    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.bytes = memory, size
        self.kept_by = ""
        """The operator whose backward needs it; the first, if there are several."""
        self.layer, self.phase = memory.layer, memory.phase
        memory.live += size
        if memory.live > memory.most:
            memory.most = memory.live
        if memory.living is not None:
            memory.living.add(self)
            if memory.watch is not None:
                memory.watch.at_most(memory)
        if memory.hears is not None:
            memory.hears(size)

    def __del__(self) -> None:
        self.memory.live -= self.bytes


class Tensor:
    """A view of a storage; `node` computed it, and is None where it needs no gradient."""

    __slots__ = ("__weakref__", "memory", "node", "output", "shape", "storage", "strides", "width")

    def __init__(
        self, storage: Any, shape: Sizes, strides: Sizes, width: int, memory: Memory, node: Node | None = None
    ) -> None:
        self.storage, self.shape, self.strides, self.width, self.memory = storage, shape, strides, width, memory
        self.node = node
        self.output = 0
        """Which of the node's outputs it is."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def contiguous(self) -> bool:
        return is_contiguous(self.shape, self.strides)

    def detached(self) -> Tensor:
        """The same bytes, without a gradient."""
        return Tensor(self.storage, self.shape, self.strides, self.width, self.memory)

    def seen_as(self, shape: Sizes, strides: Sizes) -> Tensor:
        """The same bytes in another shape, without a gradient."""
        return Tensor(self.storage, shape, strides, self.width, self.memory)


def row_major(shape: Sizes) -> Sizes:
    """Strides of a contiguous tensor."""
    strides = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        strides[at] = strides[at + 1] * (shape[at + 1] or 1)
    return tuple(strides)


def is_contiguous(shape: Sizes, strides: Sizes) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def is_dense(shape: Sizes, strides: Sizes) -> bool:
    """Whether the elements lie side by side in some order, none twice."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def empty(memory: Memory, shape: Sizes, width: int, strides: Sizes | None = None) -> Tensor:
    """A new tensor, contiguous unless strides are given."""
    return Tensor(Storage(memory, prod(shape) * width), shape, strides or row_major(shape), width, memory)


def empty_like(x: Tensor, width: int | None = None) -> Tensor:
    """A new tensor laid out as x where x is dense."""
    kept = x.strides if is_dense(x.shape, x.strides) else dense_strides(x.shape, x.strides)
    return empty(x.memory, x.shape, width or x.width, kept)


def dense_strides(shape: Sizes, strides: Sizes) -> Sizes:
    """Strides without gaps in the same order of dimensions (torch's infer_dense_strides)."""
    order = sorted(range(len(shape)), key=lambda at: (strides[at], -at))
    found, step = [0] * len(shape), 1
    for at in order:
        found[at] = step
        step *= max(shape[at], 1)
    return tuple(found)


def leaf(memory: Memory, of: Shaped) -> Tensor:
    """A parameter: its bytes are not this memory's, its gradient's are."""
    from zeroplan.autograd.graph import Accumulate

    shape = of.shape
    return Tensor(None, shape, row_major(shape), memory.width, memory, Accumulate(id(of), shape, memory.width))


def given(memory: Memory, shape: Sizes, width: int) -> Tensor:
    """An input or a buffer: its bytes are not this memory's, and it needs no gradient."""
    return Tensor(None, shape, row_major(shape), width, memory)
