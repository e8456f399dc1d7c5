"""A program run on tensors without numbers: the graph that it leaves is the one that torch would have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from zeroplan.architectures.recorded.program import (
    INPUT,
    RESULT,
    Allocated,
    Backward,
    Call,
    GradientOf,
    Layout,
    Operator,
    Program,
    Ref,
    Release,
    Result,
)
from zeroplan.autograd.graph import operator, results, save_for_backward
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.tensor import Storage, Tensor

NamedTensors = Callable[[str], Tensor]
"""Parameters and buffers of a run."""


class Caller(Protocol):
    """What runs a module that is called."""

    def __call__(self, call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]: ...


class Sizes:
    """Polynomials at one batch and sequence."""

    def __init__(self, memory: Memory, batch: int, seq: int) -> None:
        self.memory, self.batch, self.seq = memory, batch, seq

    def tensor(self, layout: Layout, storage: Storage | None) -> Tensor:
        shape = tuple([each.at(self.batch, self.seq) for each in layout.shape])
        strides = tuple([each.at(self.batch, self.seq) for each in layout.strides])
        return Tensor(storage, shape, strides, layout.width, self.memory)


def replay(
    program: Program, inputs: Sequence[Tensor], sizes: Sizes, named: NamedTensors, call: Caller
) -> list[Tensor]:  # fmt: skip
    """What the program gives."""
    tensors: dict[int, Tensor] = dict(enumerate(inputs))
    for step in program.steps:
        if isinstance(step, Operator):
            run_operator(step, tensors, sizes, named)
        elif isinstance(step, Release):
            for number in step.tensors:
                tensors.pop(number, None)
        else:
            tensors.update(zip(step.outputs, call(step, [tensors[each] for each in step.inputs]), strict=True))
    return [tensors[number] for number in program.outputs]


def run_operator(step: Operator, tensors: dict[int, Tensor], sizes: Sizes, named: NamedTensors) -> None:
    """Make its results, and its node where an input needs a gradient."""
    given = [_given(ref, tensors, sizes, named) for ref in step.inputs]
    if step.base is not None:
        written = next(each.of for each in step.results if each.is_input)
        given[written] = tensors[step.base]
    needs = tuple([each.node is not None for each in given])
    made = [_made(each, given, sizes) for each in step.results]
    backward = step.backward.get(needs) if any(needs) else None
    if backward is not None:
        node = operator(backward.name, _backward, tuple(given), (), (backward, sizes))
        save_for_backward(node, *[_saved(backward, at, given, made, sizes) for at in range(len(backward.saved))])
        if step.base is not None:  # torch's CopySlices: the base has the node
            made = [given[written].detach()]
        results(node, tuple([each for each, gets in zip(made, backward.differentiable, strict=True) if gets]))
    if step.base is not None:
        tensors[step.base] = made[0] if backward is not None else given[written]
        return
    tensors.update(zip([each.number for each in step.results], made, strict=True))


def _given(ref: Ref, tensors: dict[int, Tensor], sizes: Sizes, named: NamedTensors) -> Tensor:
    if isinstance(ref, int):
        return tensors[ref]
    return named(ref) if ref is not None else Tensor(None, (), (), 1, sizes.memory)


def _made(result: Result, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
    if result.is_input:
        return given[result.of].detach()
    if result.of >= 0:
        return sizes.tensor(result.layout, given[result.of].storage)
    size = result.size.at(sizes.batch, sizes.seq)
    return sizes.tensor(result.layout, Storage(sizes.memory, size) if result.counted else None)


def _saved(backward: Backward, at: int, given: Sequence[Tensor], made: Sequence[Tensor], sizes: Sizes) -> Tensor:
    saved = backward.saved[at]
    if saved.kind == INPUT:
        return given[saved.at]
    if saved.kind == RESULT:
        return made[saved.at]
    return sizes.tensor(saved.layout, Storage(sizes.memory, saved.size.at(sizes.batch, sizes.seq)))


def _backward(gradient: Any, *kept: Any) -> tuple[Tensor | None, ...]:
    """The storages that it makes, one after the other, and of them the gradients."""
    *_saved_tensors, backward, sizes, _needs = kept
    gradients = gradient if isinstance(gradient, list) else [gradient]
    there = next(each for each in gradients if each is not None)
    return run_backward(backward, sizes, [each or there for each in gradients])


def run_backward(backward: Backward, sizes: Sizes, gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """`gradients`: of all results that have one."""
    stays = {each.at for each in backward.gradients if each is not None and each.made}
    made: dict[int, Storage] = {}
    for step in backward.steps:
        if isinstance(step, Allocated):
            made[step.number] = Storage(sizes.memory, step.size.at(sizes.batch, sizes.seq))
        elif step.number not in stays:
            made.pop(step.number, None)

    def gradient(of: GradientOf | None) -> Tensor | None:
        if of is None:
            return None
        return sizes.tensor(of.layout, made[of.at] if of.made else gradients[of.at].storage)

    return tuple([gradient(each) for each in backward.gradients])
