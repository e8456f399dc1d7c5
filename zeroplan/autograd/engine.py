"""Backward over the graph, in the order of torch's engine (torch/csrc/autograd/engine.cpp).

Of the nodes that are ready the one made last runs first. What a node saved is freed when it has run, gradients that
meet at one output are added out of place, and one that was broadcast is summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

from zeroplan.autograd.elementwise import tensor_iterator
from zeroplan.autograd.graph import RequiresGradResult, sum_to
from zeroplan.autograd.log import BACKWARD
from zeroplan.autograd.memory import RAN, READY, Memory
from zeroplan.autograd.tensor import AccumulateGrad, Node, Tensor, empty, empty_like

PYTHON = "Func"
"""In the name of a node written in Python (torch.autograd.Function): its gradients go when it returns, before its
results are cast; those of a node of torch's own C++ live until they are."""


class Engine:
    """One run of backward from a loss."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int]] = []
        self.nodes: dict[int, Node] = {}
        self.buffers: dict[int, list[Tensor | None]] = {}
        self.uses: Counter[Node] = Counter()
        """How many gradients a parameter's own is the sum of; less those that have come."""
        self.ready: list[tuple[AccumulateGrad, Tensor]] = []
        """Parameters' gradients that are complete: taken when the node that gave the last part is done."""
        self.kept: list[Tensor] = []
        """What nodes that have run keep: they live until the graph goes."""
        self.sources: dict[AccumulateGrad, Tensor | None] = {}
        """What a layer that runs again starts from, and the gradients of that."""

    def run(self, loss: Tensor) -> None:
        """All gradients of the loss's parameters."""
        assert loss.node is not None
        memory = loss.memory
        memory.phase, memory.scope = BACKWARD, loss.node.scope
        self._count([loss.node])
        whole = empty(memory, loss.shape, loss.width)
        self._give(loss.node, 0, whole)
        self._drain(memory)
        memory.until_loss = []

    def inside(
        self, outputs: Sequence[tuple[Tensor, Tensor]], sources: Sequence[AccumulateGrad | None]
    ) -> list[Tensor | None]:  # fmt: skip
        """Backward from outputs and their gradients, within a node's backward: the gradients of `sources`."""
        memory, self.sources = outputs[0][0].memory, {source: None for source in sources if source}
        nodes = [output.node for output, _gradient in outputs if output.node]
        memory.phase, memory.scope = BACKWARD, nodes[0].scope
        self._count(nodes)
        for output, gradient in outputs:
            assert output.node is not None
            self._give(output.node, output.output, gradient)
        self._drain(memory)
        return [self.sources[source] if source else None for source in sources]

    def _drain(self, memory: Memory) -> None:
        while self.waiting:
            _sequence, key = heappop(self.waiting)
            node = self.nodes.pop(key)
            if node.scope != memory.scope:
                memory.record_event(RAN, memory.scope)
                memory.scope, memory.layer = node.scope, node.layer
            self._step(node, self.buffers.pop(key))
            self._take_ready()
        memory.record_event(RAN, memory.scope)

    def _take_ready(self) -> None:
        """Parameters' gradients leave. Another leaf's stays, or a copy where it still goes elsewhere too."""
        while self.ready:
            node, gradient = self.ready.pop(0)
            if isinstance(node, RequiresGradResult):
                waiting = [each for held in self.buffers.values() for each in held]
                node.gradient = empty_like(gradient) if any(each is gradient for each in waiting) else gradient
                continue
            assert gradient.storage is not None
            gradient.memory.record_event(READY, node.parameter, gradient.storage.bytes)
            del gradient

    def _count(self, roots: Sequence[Node]) -> None:
        seen, waiting = set(roots), list(roots)
        while waiting:
            for node in waiting.pop().edges:
                if node is None:
                    continue
                if isinstance(node, AccumulateGrad):
                    self.uses[node] += 1
                elif node not in seen:
                    seen.add(node)
                    waiting.append(node)

    def _step(self, node: Node, gradients: list[Tensor | None]) -> None:
        """Runs a node and hands its results on."""
        given = _apply(node, gradients)
        gradients.clear()
        node.saved, node.numbers = (), ()
        if node.kept is not None:
            self.kept.append(node.kept)
        node.backward = node.unpack = None
        edges, node.edges = node.edges, ()
        for at, edge in enumerate(edges):
            gradient, given[at] = given[at], None
            if edge is not None and gradient is not None:
                self._give(edge, node.outputs[at], gradient)

    def _give(self, node: Node, output: int, gradient: Tensor) -> None:
        """A gradient for one output of a node: a parameter's own is ready, another's waits for all that meet it."""
        if isinstance(node, AccumulateGrad):
            self._accumulate(node, gradient)
            return
        key = id(node)
        held = self.buffers.get(key)
        if held is None:
            held = self.buffers[key] = [None] * len(node.shapes)
            self.nodes[key] = node
            heappush(self.waiting, (-node.sequence, key))
        before = held[output]
        held[output] = gradient if before is None else accumulate(before, gradient)

    def _accumulate(self, node: AccumulateGrad, gradient: Tensor) -> None:
        """A parameter's gradient is ready when all its uses have given theirs."""
        self.uses[node] -= 1
        held = self.buffers.pop(id(node), None)
        if held is not None:
            assert held[0] is not None
            gradient = accumulate(held[0], gradient)
        if self.uses[node]:
            self.buffers[id(node)] = [gradient]
        elif node in self.sources:
            self.sources[node] = gradient
        else:
            self.ready.append((node, gradient))


def _apply(node: Node, gradients: list[Tensor | None]) -> list[Tensor | None]:
    """The node's backward; each result gets the shape and dtype of the input it belongs to (validate_outputs)."""
    assert node.backward is not None
    needs = tuple(edge is not None for edge in node.edges)
    saved = node.saved
    if node.unpack is not None:
        unpack = node.unpack
        saved = tuple([None if x is None else unpack(x) for x in saved])
    got = node.backward(gradients[0] if len(gradients) == 1 else gradients, *saved, *node.numbers, needs)
    given: list[Tensor | None] = [got] if got is None or isinstance(got, Tensor) else list(got)
    del got, saved  # what checkpointing brought back lives no longer than the call
    if PYTHON in node.name:
        gradients.clear()
    for at, edge in enumerate(node.edges):
        each = given[at]
        if edge is not None and each is not None:
            output = node.outputs[at]
            shape, width = edge.shapes[output], edge.widths[output]
            if each.shape != shape:
                given[at] = each = sum_to(each, shape)
            if each.width != width:
                given[at] = each = empty_like(each, width)
    return given


def accumulate(x: Tensor, y: Tensor) -> Tensor:
    """Two gradients that meet."""
    return tensor_iterator((x, y), x.width)
