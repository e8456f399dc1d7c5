"""Checkpointing with reentrance: one autograd function whose backward runs the layer again, and a backward in it.

torch/utils/checkpoint.py, CheckpointFunction: forward builds no graph and keeps the layer's input. Its backward runs
the whole layer on what was given by position, without its history, then autograd from the outputs made again. Arguments
by keyword lie in the function's own context, which lives as long as the graph: until the loss goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zeroplan.autograd.engine import Engine
from zeroplan.autograd.graph import operator, results, save_for_backward
from zeroplan.autograd.log import RECOMPUTING
from zeroplan.autograd.memory import LEAVE, RAN, Memory
from zeroplan.autograd.offloaded_inputs import InputOffload, OffloadedInput
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import AccumulateGrad, Tensor, empty


class Input(AccumulateGrad):
    """A layer's input without its history: its gradient is handed on, and stays as long as the input does."""

    __slots__ = ("gradient",)

    def __init__(self, x: Tensor) -> None:
        super().__init__(0, x.shape, x.width)
        self.gradient: Tensor | None = None


def checkpoint_reentrant(
    memory: Memory, layer: Callable[..., Any], x: Tensor, *rest: Any, positional: tuple[Tensor | None, ...] = (),
    input_offload: InputOffload | None = None, returned: tuple[int, ...] | None = None,
) -> Any:  # fmt: skip
    """The layer's result, one tensor or several; x and `positional` are given by position, `rest` by keyword, where
    torch has no place for gradients. `returned`: those that the function returns, where not all.

    `input_offload`: what DeepSpeed does with x.
    """
    context = _Context(layer, rest, returned)
    node = operator("CheckpointFunctionBackward", context, (x, *positional))
    if node is None or input_offload is None:
        save_for_backward(node, x, *positional)
        with memory.no_grad():
            out = layer(x, *positional, *rest)
    else:
        save_for_backward(node, None, *positional)
        part = input_offload.part(node, x)
        with memory.no_grad():
            out = layer(x, *positional, *rest)
        context.offloaded = input_offload.empty(node, x, part)
    context.shapes = [(each.shape, each.width) for each in results(node, context.returned_of(out))]
    memory.until_loss.append(context)
    return out


class _Context:
    """The function's context and backward."""

    def __init__(self, layer: Callable[..., Any], rest: tuple[Any, ...], returned: tuple[int, ...] | None) -> None:
        self.layer, self.rest, self.returned = layer, rest, returned
        self.shapes: list[tuple[Sizes, int]] = []
        """Shapes of the outputs, with the bytes of an element."""
        self.offloaded: OffloadedInput | None = None
        """The input, where it was offloaded."""

    def returned_of(self, out: Any) -> tuple[Tensor, ...]:
        made = _tensors(out)
        return made if self.returned is None else tuple([made[at] for at in self.returned])

    def __call__(self, gradients: Any, x: Tensor | None, *others: Any) -> list[Tensor | None]:
        """The gradients of x and of what else was given by position; outputs that nobody used get zeros for theirs."""
        if self.offloaded:
            x, self.offloaded = self.offloaded.restored(), None
        assert x is not None
        *positional, needs = others
        memory, inputs = x.memory, [x, *positional]
        scope, phase, of = memory.scope, memory.phase, memory.layer
        memory.record_event(RAN, scope)
        each = gradients if isinstance(gradients, list) else [gradients]
        given = [gradient or empty(memory, *like) for gradient, like in zip(each, self.shapes, strict=True)]
        sources = [Input(tensor) if needed else None for tensor, needed in zip(inputs, needs, strict=True)]
        inner = [_of_source(tensor, source) for tensor, source in zip(inputs, sources, strict=True)]
        memory.phase = RECOMPUTING
        with memory.running_again():
            outputs = self.returned_of(self.layer(*inner, *self.rest))
            memory.record_event(LEAVE, memory.scope)
            pairs = [(output, gradient) for output, gradient in zip(outputs, given, strict=True) if output.node]
            result = Engine().inside(pairs, sources)
        for source, gradient in zip(sources, result, strict=True):
            if source is not None:
                source.gradient = gradient
        memory.scope, memory.phase, memory.layer = scope, phase, of
        return result


def _of_source(x: Tensor | None, source: Input | None) -> Tensor | None:
    """Without its history; one that needs no gradient has none."""
    if x is None or source is None:
        return x
    inner = x.detach()
    inner.node = source
    return inner


def _tensors(out: Any) -> tuple[Tensor, ...]:
    return tuple(each for each in out if each is not None) if isinstance(out, tuple) else (out,)
