"""The profile of a described family: its tree of modules, run on sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import cache, lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any

from zeroplan.architectures.allocated import allocated_at, places
from zeroplan.architectures.execution import EVERY_LAYER, attention_orders, execution
from zeroplan.architectures.gradient_flow import layers_that_train
from zeroplan.architectures.identical_layers import of_each_kind, places_of_layers, ran_as, representatives
from zeroplan.architectures.leaves import leaf_paths
from zeroplan.architectures.module import Module
from zeroplan.architectures.structure import Structure
from zeroplan.architectures.timeline import ExpandedTrace, timeline
from zeroplan.architectures.trace import Trace, run_of, run_trace
from zeroplan.autograd.log import BACKWARD, FORWARD, RECOMPUTING
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.execution import AllocatedActivations, Execution, Timeline
from zeroplan.specs.model import DEFAULT_LEAVES, LeafModules, TimelineRequest

if TYPE_CHECKING:
    from zeroplan.architectures.batch_scaled import BatchScaledTrace
    from zeroplan.architectures.config import Config
    from zeroplan.specs.account import BackwardShare, Flops, RecomputedShare, SavedActivations

class TreeProfile(ABC):
    """A profile that runs trees of modules, into which others can be put."""

    @property
    @abstractmethod
    def root(self) -> Module:
        """One of the trees: all have the same modules."""

    @property
    @abstractmethod
    def model_type(self) -> str:
        """The family whose class names the modules have."""

    @abstractmethod
    def changed(self, change: Callable[[Module], Module]) -> TreeProfile:
        """The profile of the trees that `change` makes of these."""


KEPT_TIMELINES, KEPT_TRACES, KEPT_RUNS, KEPT_BYTES = 64, 64, 32, 4096


class TracedProfile(TreeProfile):
    """The profile of a described family: its step run on tensors without numbers, the latest remembered."""

    def __init__(
        self, root: Module, model_type: str, config: Config | None, build: Callable[[Any], Module],
        orders: list[Execution] | None = None,
    ) -> None:  # fmt: skip
        """`root`: the tree that `build` makes of the config; `model_type`: the described family whose class names the
        modules have. Without a config the tree's sizes have no names. `orders`: those known of the model's other trees.
        """
        self._root, self._model_type, self.config, self.build = root, model_type, config, build
        self.orders = [] if orders is None else orders
        self.executions, self.walked = cache(self._execution), cache(self._walked)
        self.timelines = lru_cache(maxsize=KEPT_TIMELINES)(self._timeline)
        self.expanded = lru_cache(maxsize=KEPT_TRACES)(self._expanded)
        self.named = lru_cache(maxsize=1)(self._named)
        self.ran = lru_cache(maxsize=KEPT_RUNS)(self._run)
        self.scaled = lru_cache(maxsize=KEPT_TRACES)(self._scaled_to_batch)
        self.with_many = lru_cache(maxsize=KEPT_RUNS)(self._with_many)
        self.bytes_alone = lru_cache(maxsize=KEPT_BYTES)(self._alone)
        self.moments = lru_cache(maxsize=KEPT_TIMELINES)(self._allocated)
        self.by_itself = lru_cache(maxsize=1)(self._by_itself)
        self.recomputed = lru_cache(maxsize=KEPT_TIMELINES)(self._recomputed_share)
        self.structure = lru_cache(maxsize=KEPT_TRACES)(self._structure)

    @property
    def root(self) -> Module:
        return self._root

    @property
    def model_type(self) -> str:
        return self._model_type

    def changed(self, change: Callable[[Module], Module]) -> TracedProfile:
        def build(config: Any) -> Module:
            return change(self.build(config))

        return TracedProfile(build(self.config), self.model_type, self.config, build)

    def names(self) -> tuple[Module, dict[str, int]]:
        """A tree whose sizes have names, and their values."""
        if self.config is None:
            return self.build(None), {}
        from zeroplan.architectures.saved_activations import with_names  # where equations are asked for

        return with_names(self.config, self.build)

    def execution(
        self, leaves: LeafModules = DEFAULT_LEAVES, *, eager: bool = False, flash: bool = False,
        kernels: str = "transformers", recomputing: Recomputing = PLAIN, frozen: frozenset[int] = frozenset(),
    ) -> Execution:  # fmt: skip
        return self.executions(leaves, eager, flash, kernels, recomputing, frozen)

    def _execution(
        self, leaves: LeafModules, eager: bool, flash: bool, kernels: str, recomputing: Recomputing,
        frozen: frozenset[int],
    ) -> Execution:  # fmt: skip
        if recomputing == EVERY_LAYER and not frozen:
            recomputing = PLAIN  # whose `recomputing` is that of every layer
        paths = leaf_paths(self.root, self.model_type, leaves)
        by_eager, by_flash = attention_orders(self.root)
        eager = eager and (by_eager or bool(paths))  # a leaf's hooks fire for eager attention's weights too
        return self.walked(paths, eager, flash and by_flash, kernels, recomputing, frozen)

    def _walked(
        self, paths: frozenset[str], eager: bool, flash: bool, kernels: str, recomputing: Recomputing,
        frozen: frozenset[int],
    ) -> Execution:  # fmt: skip
        order = execution(
            self.root, paths, eager=eager, flash=flash, kernels=kernels, recomputing=recomputing, frozen=frozen
        )
        known = next((each for each in self.orders if each == order), None)
        if known is None:
            self.orders.append(order)
        return known or order  # one object for all that are equal, by which what is counted of it is remembered

    def timeline(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> Timeline | None:
        return self.timelines(request, leaves)

    def alone(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> tuple[int, int, int] | None:
        return self.bytes_alone(request, leaves)

    def _alone(self, request: TimelineRequest, leaves: LeafModules) -> tuple[int, int, int] | None:
        try:
            expanded = self.expanded(request, leaves)
        except NotImplementedError:
            return None
        return expanded.saved, expanded.forward.fullest[0], expanded.backward.fullest[0]

    def allocated(
        self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES, *, backward: bool, at: int, size: int,
        named: bool = False,
    ) -> AllocatedActivations:  # fmt: skip
        return self.moments(request, leaves, backward, at, size, named)

    def _allocated(
        self, request: TimelineRequest, leaves: LeafModules, backward: bool, at: int, size: int, named: bool
    ) -> AllocatedActivations:
        expanded = self.named(request, leaves) if named else self.by_itself(request, leaves)
        levels = (expanded.backward if backward else expanded.forward).level(at)
        size = next((level for level in levels if level == size), size)  # with its names
        return allocated_at(expanded, backward=backward, at=at, size=size)

    def places(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES, *, backward: bool) -> list[str]:
        return places(self.by_itself(request, leaves), backward=backward)

    def peak(self, request: TimelineRequest, *, backward: bool) -> AllocatedActivations | None:
        try:
            expanded = self.expanded(request, DEFAULT_LEAVES)
        except NotImplementedError:
            return None
        size, at = (expanded.backward if backward else expanded.forward).fullest
        return self.allocated(request, backward=backward, at=at, size=size, named=True)

    def flops(self, request: TimelineRequest, *, causal: bool = False) -> Flops | None:
        if request.kernels != "transformers" or request.flash:
            return None
        try:
            counts = self._flops_by_layer(request)
        except NotImplementedError:
            return None
        times = Counter(chosen for _layer, chosen in self.layers(request))
        times[0] = 1  # outside of all layers
        sums: Counter[str] = Counter()
        for (phase, layer, triangle), count in counts.items():
            pairs = Fraction(request.seq + 1, 2 * request.seq) if causal and triangle else 1
            sums[phase] += times[layer] * int(count * pairs)
        from zeroplan.specs.account import Flops

        return Flops(sums[FORWARD], sums[BACKWARD], sums[RECOMPUTING])

    def recomputed_share(self, request: TimelineRequest) -> RecomputedShare | None:
        return self.recomputed(request)

    def _recomputed_share(self, request: TimelineRequest) -> RecomputedShare | None:
        from zeroplan.specs.account import RecomputedShare

        if not (kind := request.recomputing).every:
            return RecomputedShare(0.0, 0.0)
        if not request.frozen:  # a layer runs again as it does where all do
            request = request._replace(recomputing=kind._replace(every=1))
        try:
            counts = self._flops_by_layer(request)
        except NotImplementedError:
            return None
        layers = self.layers(request)
        checkpointed = [kind.has(place) for place in places_of_layers(self.root)]
        times = {
            FORWARD: Counter(chosen for _layer, chosen in layers),
            RECOMPUTING: Counter(chosen for _layer, chosen in compress(layers, checkpointed)),
        }
        sums: Counter[tuple[str, bool]] = Counter()
        for (phase, layer, causal), count in counts.items():
            if phase in times:
                sums[phase, causal] += times[phase][layer] * count
        products, attention = (
            sums[RECOMPUTING, causal] / sums[FORWARD, causal] if sums[FORWARD, causal] else None
            for causal in (False, True)
        )
        share = sum(checkpointed) / len(checkpointed)
        return RecomputedShare(products or 0.0, share if attention is None else attention)

    def backward_share(self, request: TimelineRequest) -> BackwardShare | None:
        """FLOPs as products of the trace say."""
        try:
            counted = self._flops_by_layer(request)
        except NotImplementedError:
            return None
        times = Counter(chosen for _layer, chosen in self.layers(request))
        inside: Counter[str] = Counter()
        outside: Counter[str] = Counter()
        entered = 0
        for (phase, layer, causal), count in counted.items():
            if not layer:
                outside[phase] += count
            elif not causal:
                inside[phase] += times[layer] * count
                if phase == FORWARD and counted.get((BACKWARD, layer, causal)):
                    entered += times[layer] * count
        from zeroplan.specs.account import BackwardShare

        return BackwardShare(
            inside[BACKWARD] / inside[FORWARD], outside[BACKWARD] / outside[FORWARD] if outside[FORWARD] else 0.0,
            entered / inside[FORWARD],
        )  # fmt: skip

    def offloaded_inputs(self, request: TimelineRequest) -> tuple[int, ...]:
        result = self.trace(request).inputs
        return tuple(result[chosen] for _layer, chosen in self.layers(request))

    def saved(self, request: TimelineRequest) -> SavedActivations | None:
        from zeroplan.architectures.saved_activations import saved

        try:
            return saved(*self.names(), request)
        except NotImplementedError:
            return None

    def _timeline(self, request: TimelineRequest, leaves: LeafModules) -> Timeline | None:
        try:
            return timeline(self.expanded(request, leaves), recomputes=request.recomputing.every > 0)
        except NotImplementedError:
            return None

    def _expanded(self, request: TimelineRequest, leaves: LeafModules) -> ExpandedTrace:
        trains = layers_that_train(self.root, request)
        return ExpandedTrace(self.structure(leaves, trains, *_how(request)), self.trace(request))

    def _by_itself(self, request: TimelineRequest, leaves: LeafModules) -> ExpandedTrace:
        """Its own layers ran: what one keeps, and for whom, depends on the next one."""
        trains = layers_that_train(self.root, request)
        layers = of_each_kind(self.root, request.recomputing, trains)
        own = self._ran_as(request.recomputing, trains) == request.recomputing
        if own and layers == self.layers(request):
            return self.expanded(request, leaves)
        return ExpandedTrace(
            Structure(self.root, self.executions(leaves, *_how(request)), layers),
            run_trace(self.root, run_of(request, self.root), layers),
        )

    def _named(self, request: TimelineRequest, leaves: LeafModules) -> ExpandedTrace:
        """The expanded trace of a tree whose sizes have names."""
        from zeroplan.architectures.saved_activations import with_named_batch

        root, _sizes = self.names()
        order = self.executions(leaves, *_how(request))
        trains = layers_that_train(root, request)
        layers = of_each_kind(root, request.recomputing, trains)
        run = run_of(with_named_batch(request), root)
        return ExpandedTrace(Structure(root, order, layers), run_trace(root, run, layers))

    def _structure(self, leaves: LeafModules, trains: tuple[Hashable, ...], *how: Any) -> Structure:
        *_attention, recomputing, _frozen = how
        layers = representatives(self.root, recomputing, self._ran_as(recomputing, trains), trains)
        return Structure(self.root, self.executions(leaves, *how), layers)

    def _ran_as(self, recomputing: Recomputing, trains: tuple[Hashable, ...]) -> Recomputing:
        return recomputing if trains else ran_as(self.root, recomputing)

    def layers(self, request: TimelineRequest) -> list[tuple[int, int]]:
        """Each layer, and its representative in the trace."""
        trains = layers_that_train(self.root, request)
        return representatives(self.root, request.recomputing, self._ran_as(request.recomputing, trains), trains)

    def trace(self, request: TimelineRequest) -> Trace:
        """The trace of the representative layers."""
        request = self._as_run(request)
        return self.scaled(request) if request.is_even else self.ran(request)

    def _as_run(self, request: TimelineRequest) -> TimelineRequest:
        """The request whose run is this one's: what gives the same trace runs once."""
        recomputing = self._ran_as(request.recomputing, layers_that_train(self.root, request))
        return request._replace(recomputing=recomputing)

    def _flops_by_layer(self, request: TimelineRequest) -> Counter[tuple[str, int, bool]]:
        """FLOPs of the representative layers, as `Memory.flops`."""
        if request.is_even:
            return self._scaled(self._as_run(request)).flops(request.batch)
        return self.trace(request).flops

    def _scaled_to_batch(self, request: TimelineRequest) -> Trace:
        return self._scaled(request).at(request.batch)

    def _scaled(self, request: TimelineRequest) -> BatchScaledTrace:
        """The run that is this request's in any number of sequences."""
        from zeroplan.architectures.batch_scaled import MANY

        return self.with_many(request._replace(batch=MANY))

    def _with_many(self, request: TimelineRequest) -> BatchScaledTrace:
        from zeroplan.architectures.batch_scaled import batch_scaled

        return batch_scaled(self._run(request))

    def _run(self, request: TimelineRequest) -> Trace:
        trains = layers_that_train(self.root, request)
        layers = representatives(self.root, request.recomputing, trains=trains)
        return run_trace(self.root, run_of(request, self.root), layers)


def _how(request: TimelineRequest) -> tuple[bool, bool, str, Recomputing, frozenset[int]]:
    """What decides the order of execution, beside leaf modules."""
    return request.eager, request.flash, request.kernels, request.recomputing, request.frozen
