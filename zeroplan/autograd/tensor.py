"""Tensors without numbers: a storage of so many bytes, and shape and strides over it as torch would have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from zeroplan.autograd.log import FREED, MADE
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.strides import Sizes, contiguous_strides, infer_dense_strides, is_contiguous, is_dense


class Storage:
    """So many bytes, from now until nothing refers to them."""

    __slots__ = ("__weakref__", "bytes", "memory", "number")

    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.bytes, self.number = memory, size, memory.made
        memory.made += 1
        memory.allocated = allocated = memory.allocated + size
        if allocated > memory.max_allocated:  # noqa: PLR1730  (thousands of times in a run)
            memory.max_allocated = allocated
        memory.log.append((MADE, self.number, size, memory.phase, memory.layer))

    def __del__(self) -> None:
        try:
            memory = self.memory
        except AttributeError:  # Ctrl-C came before it was one
            return
        memory.allocated -= self.bytes
        memory.log.append((FREED, self.number))


class Tensor:
    """A view of a storage; `node` computed it, and is None where it needs no gradient.

    A parameter's storage and an input's is None: their bytes are not counted here.
    """

    __slots__ = ("__weakref__", "memory", "node", "output", "shape", "storage", "strides", "width")

    def __init__(
        self, storage: Storage | None, shape: Sizes, strides: Sizes, width: int, memory: Memory,
        node: Node | None = None,
    ) -> None:  # fmt: skip
        self.storage, self.shape, self.strides, self.width, self.memory = storage, shape, strides, width, memory
        self.node = node
        self.output = 0
        """Which of the node's outputs it is."""

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        return is_contiguous(self.shape, self.strides)

    def detach(self) -> Tensor:
        """The same bytes, without a gradient."""
        return Tensor(self.storage, self.shape, self.strides, self.width, self.memory)

    def as_strided(self, shape: Sizes, strides: Sizes, width: int | None = None) -> Tensor:
        """The same bytes in another shape, perhaps in a dtype of another width, without a gradient."""
        return Tensor(self.storage, shape, strides, width or self.width, self.memory)


Needs = tuple[bool, ...]
"""Which inputs of an operator need a gradient."""
Gradients = Tensor | None | Sequence[Tensor | None]
Backward = Callable[..., Gradients]


class Node:
    """One operator's backward."""

    __slots__ = (
        "backward", "edges", "kept", "layer", "name", "numbers", "outputs", "saved", "scope", "sequence", "shapes",
        "unpack", "widths",
    )  # fmt: skip

    def __init__(self, name: str, sequence: int, scope: int, layer: int) -> None:
        self.name, self.sequence, self.scope, self.layer = name, sequence, scope, layer
        self.shapes: tuple[Sizes, ...] = ()
        self.widths: tuple[int, ...] = ()
        """Bytes of an element of each result: gradients take their shape and dtype."""
        self.saved: tuple[Any, ...] = ()
        self.kept: Tensor | None = None
        """What a node written in Python has as an attribute: it lives as long as the graph does."""
        self.numbers: tuple[Any, ...] = ()
        self.edges: tuple[Node | None, ...] = ()
        """The nodes of its inputs; None: that one needs no gradient."""
        self.outputs: tuple[int, ...] = ()
        """Which of that node's outputs each input is."""
        self.backward: Backward | None = None
        self.unpack: Callable[[Any], Tensor] | None = None


class AccumulateGrad(Node):
    """Where a parameter's gradient is accumulated."""

    __slots__ = ("parameter",)

    def __init__(self, parameter: int, shape: Sizes, width: int) -> None:
        super().__init__("AccumulateGrad", 0, 0, 0)
        self.parameter, self.shapes, self.widths = parameter, (shape,), (width,)


def empty(memory: Memory, shape: Sizes, width: int, strides: Sizes | None = None) -> Tensor:
    """A new tensor, contiguous unless strides are given."""
    return Tensor(Storage(memory, prod(shape) * width), shape, strides or contiguous_strides(shape), width, memory)


def empty_like(x: Tensor, width: int | None = None) -> Tensor:
    """A new tensor laid out as x, without the gaps that x may have."""
    kept = x.strides if is_dense(x.shape, x.strides) else infer_dense_strides(x.shape, x.strides)
    return empty(x.memory, x.shape, width or x.width, kept)


def given(memory: Memory, shape: Sizes, width: int) -> Tensor:
    """An input or a buffer: its bytes are not this memory's, and it needs no gradient."""
    return Tensor(None, shape, contiguous_strides(shape), width, memory)
