"""Checkpointing without reentrance: a layer runs again when backward first asks for something it saved.

torch/utils/checkpoint.py (_CheckpointFrame, _checkpoint_hook, _recomputation_hook): forward saves places instead of
tensors; the second run fills them and stops as soon as the last one is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

from zeroplan.autograd.log import KEPT, RECOMPUTING
from zeroplan.autograd.memory import LEAVE, RAN, Memory
from zeroplan.autograd.tensor import Tensor

PART = "CheckpointBackward"
"""What keeps the inputs of a part of a layer."""


class Holder:
    """Holds the place of a saved tensor (torch's _Holder)."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: Tensor | None = None


class StopRecomputationError(Exception):
    """Stop the second run: everything that forward saved is there again (torch's _StopRecomputationError)."""


class CheckpointFrame:
    """One checkpointed call."""

    def __init__(self, memory: Memory, run: Callable[[], Any], *, keeps_products: bool = False) -> None:
        self.memory, self.run, self.keeps_products = memory, run, keeps_products
        self.products: deque[tuple[Tensor, ...]] = deque()
        """Results of products and fused attention, which the second run takes in place of computing them."""
        self.places: list[ReferenceType[Holder]] = []
        self.filled = -1
        """Places that the second run has filled; -1 before it."""

    @property
    def runs_again(self) -> bool:
        """Whether this is the second run."""
        return self.filled >= 0

    def product(self, compute: Callable[[], tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
        """The results of a product: made, or as forward kept them (create_selective_checkpoint_contexts)."""
        if not self.keeps_products:
            return compute()
        if self.runs_again:
            return self.products.popleft()
        result = compute()
        self.products.append(tuple([each.detach() for each in result]))
        return result

    def pack(self, tensor: Tensor) -> Holder | Tensor:
        """In forward a place; in the second run the tensor itself, which fills the next place."""
        if not self.runs_again:
            place = Holder()
            self.places.append(ref(place))
            return place
        waiting = self.places[self.filled]()
        if waiting is not None:
            waiting.tensor = tensor
        del waiting
        self.filled += 1
        if self.filled == len(self.places):
            raise StopRecomputationError
        return tensor

    def unpack(self, place: Holder | Tensor) -> Tensor:
        if isinstance(place, Tensor):
            return place
        if not self.runs_again:
            self._again()
        tensor, place.tensor = place.tensor, None
        assert tensor is not None
        return tensor

    def _again(self) -> None:
        self.filled = 0
        memory = self.memory
        before, records, scope, phase = memory.checkpoint, memory.grad_enabled, memory.scope, memory.phase
        memory.record_event(RAN, scope)
        memory.checkpoint, memory.grad_enabled, memory.phase = self, True, RECOMPUTING
        try:
            with memory.running_again():
                self.run()
        except StopRecomputationError:
            pass
        finally:
            memory.record_event(LEAVE, memory.scope)
            memory.checkpoint, memory.grad_enabled, memory.scope, memory.phase = before, records, scope, phase
        self.places = []


def checkpoint_part(memory: Memory, part: Callable[..., Any], *inputs: Tensor | None) -> Any:
    """As `checkpoint`, for a part of a layer, whose inputs are logged as kept by it."""
    for each in inputs:
        if each is not None and each.storage is not None:
            memory.log.append((KEPT, each.storage.number, PART, memory.scope, memory.sequence))
    return checkpoint(memory, part, *inputs)


def checkpoint(
    memory: Memory, layer: Callable[..., Any], *inputs: Any, keeps_products: bool = False, positional: int = 1
) -> Any:
    """The layer's result; its graph keeps the layer's inputs and nothing else, unless it keeps products.

    Within another checkpoint the first `positional` inputs are saved as an operator saves them (_NoopSaveInputs): what
    is around runs again before the layer does. The others are held as they are.
    """
    before = memory.checkpoint
    second_run = partial(layer, *inputs)
    if before is not None and memory.grad_enabled:
        saved = [before.pack(each) for each in inputs[:positional]]
        second_run = partial(_on_saved_inputs, layer, before, saved, inputs[positional:])
    memory.checkpoint = CheckpointFrame(memory, second_run, keeps_products=keeps_products)
    try:
        return layer(*inputs)
    finally:
        memory.checkpoint = before


def _on_saved_inputs(layer: Callable[..., Any], outer: Any, saved: list[Any], others: tuple[Any, ...]) -> Any:
    """Run a layer on inputs that the checkpoint around it has saved."""
    return layer(*[outer.unpack(each) for each in saved], *others)
