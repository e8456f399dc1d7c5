"""What one of torch's operators saves for backward and runs there, found by running it alone on the meta device.

An operator is run again on tensors that lie as those of the recorded call did, once for each choice of inputs that need
a gradient: what it saves is told by saved_tensors_hooks, and what its backward makes by the storages that come and go.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from zeroplan.architectures.recorded.program import (
    INPUT,
    OTHER,
    RESULT,
    Allocated,
    Backward,
    Extent,
    Freed,
    GradientOf,
    Layout,
    Saved,
)
from zeroplan.verify.stand_ins import PASS, MetaStandIns

Needs = tuple[bool, ...]
MOST_CHOICES = 4
"""Inputs up to which all choices are tried; of more, all of them, one, or all but one."""


class Lies(NamedTuple):
    """How a tensor lies in its storage, which has others of the call's tensors too."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    device: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Lies:
        place = tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.storage_offset(), tensor.device.type
        return cls(*place)

    @property
    def layout(self) -> Layout:
        shape, strides = (tuple([Extent(each) for each in sizes]) for sizes in (self.shape, self.strides))
        return Layout(shape, strides, self.dtype.itemsize)

    def made(self) -> torch.Tensor:
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        elements = self.offset + (sum(reach) + 1 if all(self.shape) else 0)
        flat = torch.empty(elements, dtype=self.dtype, device=self.device)
        return flat.as_strided(self.shape, self.strides, self.offset)


class Call(NamedTuple):
    """A call of an operator: its arguments, with a place for each tensor."""

    function: Any
    arguments: Any
    inputs: tuple[Lies, ...]
    in_place: bool
    base: Lies | None = None
    """What the tensor that it writes to is a view of; that is the input at `written`."""
    written: int = -1


class Place:
    """Stands in a call's arguments for a tensor."""

    def __repr__(self) -> str:
        return "tensor"


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def filled(arguments: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The arguments with tensors in their places."""
    if isinstance(arguments, Place):
        return next(tensors)
    if isinstance(arguments, list | tuple):
        return type(arguments)([filled(each, tensors) for each in arguments])
    if isinstance(arguments, dict):
        return {name: filled(each, tensors) for name, each in arguments.items()}
    return arguments


class StorageLog(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Storages that are made, and go again, as `steps`."""

    def __init__(self, stand_ins: MetaStandIns, known: set[int]) -> None:
        super().__init__()
        self.stand_ins, self.known = stand_ins, known
        self.steps: list[Allocated | Freed] = []
        self.numbers: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = self.stand_ins.dispatched(func, args, kwargs or {})
        result = func(*args, **(kwargs or {})) if made is PASS else made
        for each in tree_flatten(result)[0]:
            if is_tensor(each):
                self.see(each.untyped_storage())
        return result

    def see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self.known or key in self.numbers:
            return
        number = self.numbers[key] = len(self.steps)
        self.steps.append(Allocated(number, Extent(storage.nbytes())))
        weakref.finalize(storage, self.gone, key)

    def gone(self, key: int) -> None:
        if (number := self.numbers.pop(key, None)) is not None:
            self.steps.append(Freed(number))


class Experiments:
    """Those of one recording: a call like one before is not run again."""

    def __init__(self, stand_ins: MetaStandIns) -> None:
        self.stand_ins = stand_ins
        self.known: dict[Any, dict[Needs, Backward]] = {}

    def backward(self, call: Call, may_need: Sequence[int]) -> dict[Needs, Backward]:
        """By the choice of inputs that need a gradient. `may_need`: for each input the tensor that it is, among those
        that may; -1: it never does.
        """
        key = call.function, repr(call.arguments), call.inputs, call.base, tuple(may_need)
        if key not in self.known:
            found = ((needs, self.run(call, needs)) for needs in choices(may_need))
            self.known[key] = {needs: backward for needs, backward in found if backward is not None}
        return self.known[key]

    def run(self, call: Call, needs: Needs) -> Backward | None:
        """None where nothing that it gives has a gradient."""
        with torch.no_grad():
            lies = [call.base if call.base and at == call.written else each for at, each in enumerate(call.inputs)]
            leaves = [each.made() for each in lies]
        for leaf, need in zip(leaves, needs, strict=True):
            leaf.requires_grad_(need)
        saved: list[torch.Tensor] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor)
            return tensor

        with torch.enable_grad():
            given = [leaf.clone() for leaf in leaves] if call.in_place else leaves
            whole = given[call.written]
            if call.base:
                view = call.inputs[call.written]
                given[call.written] = whole.as_strided(view.shape, view.strides, view.offset)
            arguments, named = filled(call.arguments, iter(given))
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                made = self.stand_ins.dispatched(call.function, arguments, named)
                made = call.function(*arguments, **named) if made is PASS else made
        results = [whole] if call.base else [each for each in tree_flatten(made)[0] if is_tensor(each)]
        gets = [each for each in results if each.requires_grad]
        if not gets:
            return None
        inputs, outputs = ([each.untyped_storage()._cdata for each in several] for several in (given, results))
        kept = tuple([_saved(each, inputs, outputs) for each in saved])
        steps, gradients = self._backward(leaves, needs, gets, {*inputs, *outputs}, saved)
        name = next((each.grad_fn.name() for each in gets if each.grad_fn is not None), str(call.function))
        return Backward(name, kept, steps, gradients, tuple([each.requires_grad for each in results]))

    def _backward(
        self, leaves: Sequence[torch.Tensor], needs: Needs, results: Sequence[torch.Tensor], known: set[int],
        saved: Sequence[torch.Tensor],
    ) -> tuple[tuple[Allocated | Freed, ...], tuple[GradientOf | None, ...]]:  # fmt: skip
        given = [torch.empty_like(each) for each in results]
        incoming = [each.untyped_storage()._cdata for each in given]
        there = known | {each.untyped_storage()._cdata for each in (*leaves, *saved, *given)}
        log = StorageLog(self.stand_ins, there)
        wanted = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
        with log:
            got = iter(torch.autograd.grad(results, wanted, given, allow_unused=True))
        gradients = [next(got) if need else None for need in needs]
        del got
        of = tuple([None if each is None else _gradient(each, incoming, log) for each in gradients])
        steps = tuple(log.steps)
        return steps, of


def _gradient(gradient: torch.Tensor, incoming: Sequence[int], log: StorageLog) -> GradientOf:
    storage = gradient.untyped_storage()
    layout = Lies.of(gradient).layout
    if storage._cdata in incoming:
        return GradientOf(False, incoming.index(storage._cdata), layout)
    if storage._cdata not in log.numbers:  # of what was there already, as a view of something saved
        log.known.discard(storage._cdata)
        log.see(storage)
    return GradientOf(True, log.numbers[storage._cdata], layout)


def _saved(tensor: torch.Tensor, inputs: Sequence[int], outputs: Sequence[int]) -> Saved:
    storage, layout = tensor.untyped_storage(), Lies.of(tensor).layout
    for kind, places in ((INPUT, inputs), (RESULT, outputs)):
        if storage._cdata in places:
            return Saved(kind, places.index(storage._cdata), layout)
    return Saved(OTHER, 0, layout, Extent(storage.nbytes()))


def choices(may_need: Sequence[int]) -> Iterator[Needs]:
    """Choices of the tensors that need a gradient, as inputs that do."""
    tensors = sorted({each for each in may_need if each >= 0})
    every: Any = product((False, True), repeat=len(tensors))
    if len(tensors) > MOST_CHOICES:
        ones = [[at == other for at in range(len(tensors))] for other in range(len(tensors))]
        every = [[True] * len(tensors), *ones, *[[not each for each in one] for one in ones]]
    for choice in every:
        chosen = {tensor for tensor, need in zip(tensors, choice, strict=True) if need}
        if chosen:
            yield tuple([each in chosen for each in may_need])
