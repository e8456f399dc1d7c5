"""The graph that forward leaves, and backward over it, in the order of torch's engine.

torch/csrc/autograd/engine.cpp: of the nodes that are ready the one made last runs first. What a node saved is freed
when it has run, gradients that meet at one output are added out of place, and one that was broadcast is summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from zeroplan.autograd.iterator import iterated
from zeroplan.autograd.memory import Memory, Shaped
from zeroplan.autograd.strides import Sizes, row_major
from zeroplan.autograd.tensor import Tensor, empty, empty_like

Needs = tuple[bool, ...]
"""Which inputs of an operator need a gradient."""
Gradients = Tensor | None | Sequence[Tensor | None]
Backward = Callable[..., Gradients]


class Node:
    """One operator's backward."""

    __slots__ = ("backward", "edges", "name", "numbers", "saved", "scope", "sequence", "shapes", "unpack", "widths")

    def __init__(self, name: str, sequence: int, scope: str) -> None:
        self.name, self.sequence, self.scope = name, sequence, scope
        self.shapes: tuple[Sizes, ...] = ()
        self.widths: tuple[int, ...] = ()
        """Of the results: gradients take their shape and dtype."""
        self.saved: list[Any] = []
        self.numbers: tuple[Any, ...] = ()
        self.edges: tuple[tuple[Node, int] | None, ...] = ()
        self.backward: Backward | None = None
        self.unpack: Callable[[Any], Tensor] | None = None


class Accumulate(Node):
    """Where a parameter's gradient ends."""

    __slots__ = ("parameter",)

    def __init__(self, parameter: int, shape: Sizes, width: int) -> None:
        super().__init__("AccumulateGrad", 0, "")
        self.parameter, self.shapes, self.widths = parameter, (shape,), (width,)


def operator(
    name: str,
    backward: Backward,
    inputs: tuple[Tensor | None, ...],
    saved: tuple[Tensor | None, ...] = (),
    numbers: tuple[Any, ...] = (),
) -> Node | None:
    """The node of an operator that is about to run, with what it saves of its inputs; None if none needs a gradient.

    `backward` gets the gradient (a list for several results), then what was saved, then `numbers`, then which
    inputs need a gradient, and gives a gradient for each input.
    """
    memory = next(x.memory for x in inputs if x is not None)
    if not memory.records or all(x is None or x.node is None for x in inputs):
        return None
    memory.sequence += 1
    node = Node(name, memory.sequence, memory.scope)
    node.edges = tuple((x.node, x.output) if x is not None and x.node is not None else None for x in inputs)
    node.backward, node.numbers = backward, numbers
    if memory.checkpoint is not None:
        node.unpack = memory.checkpoint.unpack
    keep(node, *saved)
    return node


def keep(node: Node | None, *tensors: Tensor | None) -> None:
    """Saves tensors for backward, or what checkpointing puts in the place of each."""
    if node is None:
        return
    for tensor in tensors:
        if tensor is None:
            node.saved.append(None)
        elif (checkpoint := tensor.memory.checkpoint) is None:
            node.saved.append(tensor.detached())
        else:
            node.saved.append(checkpoint.pack(tensor.detached()))


def result(node: Node | None, made: Tensor, *, keeps: bool = False) -> Tensor:
    """`made` as the operator's result, kept for backward too if `keeps`."""
    if node is not None:
        node.shapes, node.widths = (made.shape,), (made.width,)
        if keeps:
            keep(node, made)
        made.node = node
    return made


def results(node: Node | None, made: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Several results of one operator."""
    if node is not None:
        node.shapes = tuple(each.shape for each in made)
        node.widths = tuple(each.width for each in made)
        for at, each in enumerate(made):
            each.node, each.output = node, at
    return made


def leaf(memory: Memory, of: Shaped) -> Tensor:
    """A parameter: its bytes are not this memory's, its gradient's are."""
    node = Accumulate(id(of), of.shape, memory.width)
    return Tensor(None, of.shape, row_major(of.shape), memory.width, memory, node)


class Engine:
    """One run of backward from a loss."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int]] = []
        self.nodes: dict[int, Node] = {}
        self.buffers: dict[int, list[Tensor | None]] = {}
        self.uses: Counter[Node] = Counter()
        """How many gradients a parameter's own is the sum of; less those that have come."""

    def run(self, loss: Tensor) -> None:
        """All gradients of the loss's parameters."""
        assert loss.node is not None
        self._count(loss.node)
        whole = empty(loss.memory, loss.shape, loss.width)
        self._give(loss.node, 0, whole)
        while self.waiting:
            _sequence, key = heappop(self.waiting)
            self._step(self.nodes.pop(key), self.buffers.pop(key))

    def _count(self, root: Node) -> None:
        seen, waiting = {root}, [root]
        while waiting:
            for edge in waiting.pop().edges:
                if edge is None:
                    continue
                node = edge[0]
                if isinstance(node, Accumulate):
                    self.uses[node] += 1
                elif node not in seen:
                    seen.add(node)
                    waiting.append(node)

    def _step(self, node: Node, gradients: list[Tensor | None]) -> None:
        """Runs a node and hands its results on."""
        given = _apply(node, gradients)
        gradients.clear()
        node.saved, node.numbers = [], ()
        node.backward = node.unpack = None
        edges, node.edges = node.edges, ()
        for at, edge in enumerate(edges):
            gradient, given[at] = given[at], None
            if edge is not None and gradient is not None:
                self._give(edge[0], edge[1], gradient)

    def _give(self, node: Node, output: int, gradient: Tensor) -> None:
        """A gradient for one output of a node: a parameter's own is ready, another's waits for all that meet it."""
        if isinstance(node, Accumulate):
            self._accumulate(node, gradient)
            return
        key = id(node)
        held = self.buffers.get(key)
        if held is None:
            held = self.buffers[key] = [None] * len(node.shapes)
            self.nodes[key] = node
            heappush(self.waiting, (-node.sequence, key))
        before = held[output]
        held[output] = gradient if before is None else summed(before, gradient)

    def _accumulate(self, node: Accumulate, gradient: Tensor) -> None:
        """A parameter's gradient is ready when all its uses have given theirs."""
        self.uses[node] -= 1
        held = self.buffers.pop(id(node), None)
        if held is not None:
            assert held[0] is not None
            gradient = summed(held[0], gradient)
        if self.uses[node]:
            self.buffers[id(node)] = [gradient]
        elif (hears := gradient.memory.ready) is not None:
            assert gradient.storage is not None
            hears(node.parameter, gradient.storage.bytes)


def _apply(node: Node, gradients: list[Tensor | None]) -> list[Tensor | None]:
    """The node's backward; each result gets the shape and dtype of the input it belongs to (validate_outputs)."""
    assert node.backward is not None
    needs = tuple(edge is not None for edge in node.edges)
    saved = node.saved
    if node.unpack is not None:
        unpack = node.unpack
        saved = [None if x is None else unpack(x) for x in saved]
    got = node.backward(gradients[0] if len(gradients) == 1 else gradients, *saved, *node.numbers, needs)
    given: list[Tensor | None] = [got] if got is None or isinstance(got, Tensor) else list(got)
    del got, saved  # what checkpointing brought back lives no longer than the call
    for at, edge in enumerate(node.edges):
        each = given[at]
        if edge is not None and each is not None:
            shape, width = edge[0].shapes[edge[1]], edge[0].widths[edge[1]]
            if each.shape != shape:
                given[at] = each = summed_to(each, shape)
            if each.width != width:
                given[at] = each = empty_like(each, width)
    return given


def summed(x: Tensor, y: Tensor) -> Tensor:
    """Two gradients that meet."""
    return iterated((x, y), x.width)


def summed_to(x: Tensor, shape: Sizes) -> Tensor:
    """`x` summed over the dimensions in which `shape` was broadcast to it (at::sum_to)."""
    kept = (1,) * (len(x.shape) - len(shape)) + shape
    total = empty(x.memory, kept, x.width)
    return total.seen_as(shape, total.strides[len(kept) - len(shape) :])
