"""The graph that forward leaves: one node for each operator that has a gradient, with what it keeps for backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zeroplan.autograd.log import KEPT
from zeroplan.autograd.memory import Memory, Shaped
from zeroplan.autograd.strides import Sizes, contiguous_strides
from zeroplan.autograd.tensor import AccumulateGrad, Backward, Node, Tensor, empty

FLOAT = 4


class RequiresGradResult(AccumulateGrad):
    """Where the gradient of a result ends that asks for one itself (requires_grad_): it lives as long as the result."""

    __slots__ = ("gradient", "result")

    def __init__(self, result: Tensor) -> None:
        super().__init__(0, result.shape, result.width)
        self.result = result.detach()
        self.gradient: Tensor | None = None


def requires_grad(x: Tensor) -> Tensor:
    """`x`, which asks for a gradient from now on; it lives until the loss goes, and so does the gradient."""
    node = RequiresGradResult(x)
    x.memory.until_loss.append(node)
    x.node = node
    return x


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
    edges: list[Node | None] = []
    outputs: list[int] = []
    memory: Memory | None = None
    for x in inputs:  # thousands of times in a run: a loop, where a few comprehensions would say it
        if x is None or x.node is None:
            edges.append(None)
            outputs.append(0)
        else:
            edges.append(x.node)
            outputs.append(x.output)
            memory = x.memory
    if memory is None or not memory.grad_enabled:
        return None
    memory.sequence += 1
    node = Node(name, memory.sequence, memory.scope, memory.layer)
    node.edges, node.outputs, node.backward, node.numbers = tuple(edges), tuple(outputs), backward, numbers
    if saved:
        save_for_backward(node, *saved)
    return node


def save_for_backward(node: Node | None, *tensors: Tensor | None) -> None:
    """Save tensors for backward, or what checkpointing puts in the place of each."""
    if node is None:
        return
    for tensor in tensors:
        node.saved += (_packed(node, tensor) if tensor is not None else None,)


def _packed(node: Node, tensor: Tensor) -> Any:
    """The tensor without its gradient, or what the checkpoint around has in its place."""
    log_saved(node, tensor)
    if (checkpoint := tensor.memory.checkpoint) is None:
        return tensor.detach()
    if not checkpoint.runs_again:  # then it has the tensor itself
        node.unpack = checkpoint.unpack
    return checkpoint.pack(tensor.detach())


def log_saved(node: Node, tensor: Tensor) -> None:
    """Log that the node saves the tensor, wherever it does."""
    if tensor.storage is not None:
        tensor.memory.log.append((KEPT, tensor.storage.number, node.name, node.scope, node.sequence))


def product(
    memory: Memory, multiplications: int, compute: Callable[[], tuple[Tensor, ...]], *, causal: bool = False
) -> tuple[Tensor, ...]:
    """What a product gives, once it has multiplied; a checkpoint may have kept it."""

    def run() -> tuple[Tensor, ...]:
        memory.add_flops(multiplications, causal=causal)
        return compute()

    return run() if memory.checkpoint is None else memory.checkpoint.product(run)


def result(node: Node | None, out: Tensor, *, keeps: bool = False) -> Tensor:
    """`out` as the operator's result, kept for backward too if `keeps`."""
    if node is not None:
        node.shapes, node.widths = (out.shape,), (out.width,)
        if keeps:
            save_for_backward(node, out)
        out.node = node
    return out


def results(node: Node | None, out: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Several results of one operator."""
    if node is not None:
        node.shapes = tuple([each.shape for each in out])
        node.widths = tuple([each.width for each in out])
        for at, each in enumerate(out):
            each.node, each.output = node, at
    return out


def leaf(memory: Memory, of: Shaped) -> Tensor:
    """A parameter: its bytes are not this memory's, its gradient's are."""
    width = FLOAT if id(of) in memory.wide else memory.width
    node = AccumulateGrad(id(of), of.shape, width)
    return Tensor(None, of.shape, contiguous_strides(of.shape), width, memory, node)


def parameter(memory: Memory, of: Shaped) -> Tensor:
    """The tensor that stands for a module's parameter in a run."""
    if of not in memory.parameters:
        tensor = leaf(memory, of)
        memory.parameters[of] = tensor.detach() if id(of) in memory.frozen else tensor
    known: Tensor = memory.parameters[of]
    return known


def sum_to(x: Tensor, shape: Sizes) -> Tensor:
    """`x` summed over the dimensions in which `shape` was broadcast to it (at::sum_to)."""
    kept = (1,) * (len(x.shape) - len(shape)) + shape
    total = empty(x.memory, kept, x.width)
    return total.as_strided(shape, total.strides[len(kept) - len(shape) :])
