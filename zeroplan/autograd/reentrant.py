"""Checkpointing with reentrance: one autograd function whose backward runs the layer again, and a backward in it.

torch/utils/checkpoint.py, CheckpointFunction: forward builds no graph and keeps the layer's input. Its backward runs
the whole layer on the input without its history, then autograd from the outputs made again. Arguments by keyword lie in
the function's own context, which lives as long as the graph: until the loss goes.
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
    """A layer's input without its history: its gradient is handed on."""

    __slots__ = ()

    def __init__(self, x: Tensor) -> None:
        super().__init__(0, x.shape, x.width)


def checkpoint_reentrant(
    memory: Memory, layer: Callable[..., Any], x: Tensor, *rest: Any, positional: tuple[Tensor | None, ...] = (),
    input_offload: InputOffload | None = None,
) -> Any:  # fmt: skip
    """The layer's result, one tensor or several; tensors `positional` x are given by position, `rest` by keyword.

    `input_offload`: what DeepSpeed does with x.
    """
    context = _Context(layer, rest)
    node = operator("CheckpointFunctionBackward", context, (x,))
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
    context.shapes = [(each.shape, each.width) for each in results(node, _tensors(out))]
    memory.until_loss.append(context)
    return out


class _Context:
    """The function's context and backward."""

    def __init__(self, layer: Callable[..., Any], rest: tuple[Any, ...]) -> None:
        self.layer, self.rest = layer, rest
        self.shapes: list[tuple[Sizes, int]] = []
        """Shapes of the outputs, with the bytes of an element."""
        self.offloaded: OffloadedInput | None = None
        """The input, where it was offloaded."""

    def __call__(self, gradients: Any, x: Tensor | None, *others: Any) -> Tensor:
        """The gradient of x; outputs that nobody used get zeros for theirs."""
        if self.offloaded:
            x, self.offloaded = self.offloaded.restored(), None
        assert x is not None
        memory, source = x.memory, Input(x)
        scope, phase, of = memory.scope, memory.phase, memory.layer
        memory.record_event(RAN, scope)
        each = gradients if isinstance(gradients, list) else [gradients]
        given = [gradient or empty(memory, *like) for gradient, like in zip(each, self.shapes, strict=True)]
        inner = x.detach()
        inner.node = source
        memory.phase = RECOMPUTING
        *positional, _needs = others
        outputs = _tensors(self.layer(inner, *positional, *self.rest))
        memory.record_event(LEAVE, memory.scope)
        result = Engine().inside(list(zip(outputs, given, strict=True)), source)
        memory.scope, memory.phase, memory.layer = scope, phase, of
        return result


def _tensors(out: Any) -> tuple[Tensor, ...]:
    return tuple(each for each in out if each is not None) if isinstance(out, tuple) else (out,)
