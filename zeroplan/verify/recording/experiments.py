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

from zeroplan.architectures.recorded.program import (
    INPUT,
    OTHER,
    RESULT,
    Allocated,
    Backward,
    Extent,
    Freed,
    GradientOf,
    Saved,
)
from zeroplan.verify.recording.dispatch_cache import DispatchCache
from zeroplan.verify.recording.lies import Lies, filled
from zeroplan.verify.recording.products import flops
from zeroplan.verify.stand_ins import PASS, MetaStandIns
from zeroplan.verify.values import ValuedStandIns, tensors_in

Needs = tuple[bool, ...]
MOST_CHOICES = 4
"""Inputs up to which all choices are tried; of more, all of them, one, or all but one."""


class Call(NamedTuple):
    """A call of an operator: its arguments, with a place for each tensor."""

    function: Any
    arguments: Any
    inputs: tuple[Lies, ...]
    in_place: bool
    base: Lies | None = None
    """What the tensor that it writes to is a view of; that is the input at `written`."""
    written: int = -1
    values: tuple[tuple[int, torch.Tensor], ...] = ()
    """Of inputs whose values decide sizes, by their place."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The same for calls that run alike."""
        values = [(at, tuple(value.shape), hash(value.numpy().tobytes())) for at, value in self.values]
        return self.function, repr(self.arguments), self.inputs, self.base, tuple(values)


class StoodIn(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """What stands in for operators does so below autograd."""

    def __init__(self, stand_ins: MetaStandIns, cache: DispatchCache) -> None:
        super().__init__()
        self.stand_ins, self.cache = stand_ins, cache

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = self.stand_ins.dispatched(func, args, kwargs or {})
        return self.cache.run(func, args, kwargs or {}) if made is PASS else made


class StorageLog(StoodIn):
    """Storages that are made, and go again, as `steps`."""

    def __init__(self, stand_ins: MetaStandIns, cache: DispatchCache, known: set[int]) -> None:
        super().__init__(stand_ins, cache)
        self.known = known
        self.steps: list[Allocated | Freed] = []
        self.numbers: dict[int, int] = {}
        self.live: list[Any] = []
        """What says that a storage goes."""
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.flops += flops(func, args, kwargs or {}, result)
        for each in tensors_in(result):
            self.see(each.untyped_storage())
        return result

    def see(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self.known or key in self.numbers:
            return
        number = self.numbers[key] = len(self.steps)
        self.steps.append(Allocated(number, Extent(storage.nbytes())))
        self.live.append(weakref.ref(storage, lambda _dead: self.gone(key)))

    def gone(self, key: int) -> None:
        if (number := self.numbers.pop(key, None)) is not None:
            self.steps.append(Freed(number))


class Experiments:
    """Those of a model's recordings: a call like one before is not run again."""

    def __init__(self) -> None:
        self.cache = DispatchCache()
        self.stand_ins = ValuedStandIns(self.cache.run)
        self.known: dict[Any, dict[Needs, Backward]] = {}

    def backward(self, call: Call, may_need: Sequence[int]) -> dict[Needs, Backward]:
        """By the choice of inputs that need a gradient. `may_need`: for each input the tensor that it is, among those
        that may; -1: it never does.
        """
        key = call.key, tuple(may_need)
        if key not in self.known:
            found = ((needs, self.run(call, needs)) for needs in choices(may_need))
            self.known[key] = {needs: backward for needs, backward in found if backward is not None}
        return self.known[key]

    def run(self, call: Call, needs: Needs) -> Backward | None:
        """None where nothing that it gives has a gradient."""
        with torch.no_grad():
            lies = [call.base if call.base and at == call.written else each for at, each in enumerate(call.inputs)]
            leaves = [each.empty() for each in lies]
        for at, value in call.values:
            self.stand_ins.known(leaves[at], value)
        for leaf, need in zip(leaves, needs, strict=True):
            leaf.requires_grad_(need)
        saved: list[torch.Tensor] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            saved.append(tensor)
            return tensor

        with torch.enable_grad():
            given = [leaf.clone() if call.in_place and leaf.is_floating_point() else leaf for leaf in leaves]
            whole = given[call.written]
            if call.base:
                view = call.inputs[call.written]
                given[call.written] = whole.as_strided(view.shape, view.strides, view.offset)
            arguments, named = filled(call.arguments, iter(given))
            saving = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
            with StoodIn(self.stand_ins, self.cache), saving:
                made = call.function(*arguments, **named)
        results = [whole] if call.base else tensors_in(made)
        gets = [each for each in results if each.requires_grad]
        if not gets:
            return None
        inputs, outputs = ([each.untyped_storage()._cdata for each in several] for several in (given, results))
        kept = tuple([_saved(each, inputs, outputs) for each in saved])
        steps, gradients, count = self._backward(leaves, gets, {*inputs, *outputs}, saved)
        name = next((each.grad_fn.name() for each in gets if each.grad_fn is not None), str(call.function))
        differentiable = tuple([each.requires_grad for each in results])
        return Backward(name.rstrip("0123456789"), kept, steps, gradients, differentiable, Extent(count))

    def _backward(
        self, leaves: Sequence[torch.Tensor], results: Sequence[torch.Tensor], known: set[int],
        saved: Sequence[torch.Tensor],
    ) -> tuple[tuple[Allocated | Freed, ...], tuple[GradientOf | None, ...], int]:  # fmt: skip
        given = [torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in results]
        incoming = [each.untyped_storage()._cdata for each in given]
        there = known | {each.untyped_storage()._cdata for each in (*leaves, *saved, *given)}
        log = StorageLog(self.stand_ins, self.cache, there)
        with log:
            gradients = gradients_of(results, leaves, given)
        of = tuple([None if each is None else _gradient(each, incoming, log) for each in gradients])
        return tuple(log.steps), of, log.flops


def gradients_of(
    results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], given: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:  # fmt: skip
    """Of each leaf that needs one. One node's are those that it gives itself, before torch's engine casts or sums them
    to what they belong to (validate_outputs): what the node saved may be gone by then.
    """
    node = results[0].grad_fn
    edges = [_leaf_of(edge) for edge, _at in node.next_functions] if node is not None else []
    alone = node is not None and all(each.grad_fn is node for each in results)
    if not alone or not callable(node) or any(edge is NOT_A_LEAF for edge in edges):
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        got = iter(torch.autograd.grad(results, wanted, given, allow_unused=True))
        return [next(got) if leaf.requires_grad else None for leaf in leaves]
    of_results: list[torch.Tensor | None] = [None] * (1 + max(each.output_nr for each in results))
    for each, gradient in zip(results, given, strict=True):
        of_results[each.output_nr] = gradient
    with torch.no_grad():
        made = node(*of_results)
    made = made if isinstance(made, tuple) else (made,)
    by_leaf = {id(edge): gradient for edge, gradient in zip(edges, made, strict=True) if edge is not None}
    return [by_leaf.get(id(leaf)) for leaf in leaves]


NOT_A_LEAF = object()


def _leaf_of(node: Any) -> Any:
    """The leaf that a node's gradient goes to, or to whose copy; None where nothing needs it."""
    if node is not None and node.name() == "CloneBackward0":
        node = node.next_functions[0][0]
    return None if node is None else getattr(node, "variable", NOT_A_LEAF)


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
