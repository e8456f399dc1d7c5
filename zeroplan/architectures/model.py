"""From a family's config to a `Model`: tensors from the tree of modules, widths from the config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from zeroplan.architectures.allocated import allocated_at
from zeroplan.architectures.batch_scaled import MANY, BatchScaledTrace, batch_scaled, is_even
from zeroplan.architectures.config import Config
from zeroplan.architectures.execution import EVERY_LAYER, attention_orders, execution
from zeroplan.architectures.forward_run import run_of
from zeroplan.architectures.identical_layers import ran_as, representatives
from zeroplan.architectures.leaves import leaf_paths
from zeroplan.architectures.module import Linear, Module, tree
from zeroplan.architectures.places import places
from zeroplan.architectures.registry import family, language_model
from zeroplan.architectures.shape import shape_of
from zeroplan.architectures.structure import Structure
from zeroplan.architectures.timeline import ExpandedTrace, timeline
from zeroplan.architectures.trace import Trace, run_trace
from zeroplan.autograd.log import BACKWARD, FORWARD, RECOMPUTING
from zeroplan.specs.account import AllocatedActivations, Flops, RecomputedShare, SavedActivations
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.execution import Execution, Timeline
from zeroplan.specs.model import (
    DEFAULT_LEAVES,
    MASKED_WORD,
    NEXT_WORD,
    ExecutionOrder,
    LeafModules,
    Model,
    ParameterSpec,
    TimelineRequest,
)

if TYPE_CHECKING:
    from zeroplan.architectures.heads import HeadConfig

BUFFER_DTYPES = {"embed_scale": "training", "e_score_correction_bias": "kept"}
"""Buffers without a dtype of their own; see `Model.buffers`."""


def model_of(
    model_type: str, config: Config, *, name: str, source: str, content: Mapping[str, Any] | None = None,
    architecture: str = "", head: HeadConfig | None = None,
) -> Model:  # fmt: skip
    """The model that transformers would build from this config; `content`: config.json as it was stated.

    `architecture`, `head`: the class, where it is not the family's language model.
    """
    build = family(model_type)[1]
    if head:
        from zeroplan.architectures.heads import builder

        build = builder(build, head)
    model = model_from(config, build, family=model_type, classes=model_type, name=name, source=source, content=content)
    if head:
        return model._replace(
            architecture=architecture, loss=head.loss, labels=head.labels_are, unplanned=head.unplanned
        )
    architecture = language_model(model_type, getattr(config, "is_decoder", False))
    return model._replace(architecture=architecture, loss=MASKED_WORD if "MaskedLM" in architecture else NEXT_WORD)


def model_from(
    config: Config, build: Callable[[Any], Module], *, family: str, classes: str, name: str, source: str,
    content: Mapping[str, Any] | None,
) -> Model:  # fmt: skip
    """The model of the tree that `build` makes; `classes`: the described family whose class names its modules have."""
    root = build(config)
    owners = [(module, id(p)) for _path, module in tree(root) for p in module.parameters.values()]
    viewed = {parameter for module, parameter in owners if module.saves_views}
    linear = {parameter for module, parameter in owners if module.transformers_class == Linear.transformers_class}
    uses, named = Counter(parameter for _module, parameter in owners), list(root.named_parameters())
    tensors = tuple([ParameterSpec(path, p.shape, p.elements, id(p) in viewed, id(p) in linear) for path, p in named])
    order = executes(root, classes)
    return Model(
        name=name, family=family, tensors=tensors, parameters=sum(t.elements for t in tensors),
        shape=shape_of(config, root), execution=order,
        buffers=tuple(
            ("built" if b.cast_by_init else BUFFER_DTYPES.get(path.rpartition(".")[2], b.dtype), prod(b.shape))
            for path, b in root.named_buffers()
        ),
        timeline=ModelTimelines(root, order, lambda: _with_names(config, build)),
        source=source, config=dict(content or {}), has_sdpa=config.has_sdpa, no_flash=config.no_flash,
        own_attention=config.own_attention, changes_products=config.changes_products,
        tied=tuple(p.elements for _path, p in named for _use in range(uses[id(p)] - 1)),
    )  # fmt: skip


def _with_names(config: Config, build: Callable[[Any], Module]) -> tuple[Module, dict[str, int]]:
    from zeroplan.architectures.saved_activations import with_names  # sizes get names where equations are asked for

    return with_names(config, build)


def executes(root: Module, model_type: str) -> ExecutionOrder:
    """The order in which a training step runs this tree, each answer worked out once."""

    @cache
    def result(paths: frozenset[str], eager: bool, flash: bool, kernels: str, recomputing: Recomputing) -> Execution:
        return execution(root, paths, eager=eager, flash=flash, kernels=kernels, recomputing=recomputing)

    @cache
    def order(
        leaves: LeafModules = DEFAULT_LEAVES, *, eager: bool = False, flash: bool = False,
        kernels: str = "transformers", recomputing: Recomputing = PLAIN,
    ) -> Execution:  # fmt: skip
        if recomputing == EVERY_LAYER:
            recomputing = PLAIN  # whose `recomputing` is that of every layer
        paths = leaf_paths(root, model_type, leaves)
        by_eager, by_flash = attention_orders(root)
        eager = eager and (by_eager or bool(paths))  # a leaf's hooks fire for eager attention's weights too
        return result(paths, eager, flash and by_flash, kernels, recomputing)

    return order


KEPT_TIMELINES, KEPT_TRACES, KEPT_RUNS = 64, 64, 32


class ModelTimelines:
    """Runs of a model's step on tensors without numbers, the latest remembered."""

    def __init__(
        self, root: Module, executes: ExecutionOrder, names: Callable[[], tuple[Module, dict[str, int]]]
    ) -> None:
        self.root, self.executes, self.names = root, executes, names
        self.found = lru_cache(maxsize=KEPT_TIMELINES)(self._timeline)
        self.expanded = lru_cache(maxsize=KEPT_TRACES)(self._expanded)
        self.named = lru_cache(maxsize=1)(self._named)
        self.ran = lru_cache(maxsize=KEPT_TRACES)(self._ran)
        self.with_many = lru_cache(maxsize=KEPT_RUNS)(self._with_many)
        self.bytes_alone = lru_cache(maxsize=KEPT_TIMELINES)(self._alone)
        self.by_itself = lru_cache(maxsize=1)(self._by_itself)
        self.recomputed = lru_cache(maxsize=KEPT_TIMELINES)(self._recomputed_share)
        self.structure = lru_cache(maxsize=KEPT_TRACES)(self._structure)

    def __call__(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> Timeline | None:
        return self.found(request, leaves)

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
            found = self.trace(request).flops
        except NotImplementedError:
            return None
        times = Counter(chosen for _layer, chosen in self.layers(request.recomputing))
        times[0] = 1  # outside of all layers
        sums: Counter[str] = Counter()
        for (phase, layer, triangle), count in found.items():
            pairs = Fraction(request.seq + 1, 2 * request.seq) if causal and triangle else 1
            sums[phase] += times[layer] * int(count * pairs)
        return Flops(sums[FORWARD], sums[BACKWARD], sums[RECOMPUTING])

    def recomputed_share(self, request: TimelineRequest) -> RecomputedShare | None:
        return self.recomputed(request)

    def _recomputed_share(self, request: TimelineRequest) -> RecomputedShare | None:
        if not request.recomputing.every:
            return RecomputedShare(0.0, 0.0)
        try:
            found = self.trace(request).flops
        except NotImplementedError:
            return None
        layers = self.layers(request.recomputing)
        times = Counter(chosen for _layer, chosen in layers)
        sums: Counter[tuple[str, bool]] = Counter()
        for (phase, layer, causal), count in found.items():
            sums[phase, causal] += times[layer] * count
        products, attention = (
            sums[RECOMPUTING, causal] / sums[FORWARD, causal] if sums[FORWARD, causal] else None
            for causal in (False, True)
        )
        share = sum(request.recomputing.has(number) for number in range(len(layers))) / len(layers)
        return RecomputedShare(products or 0.0, share if attention is None else attention)

    def offloaded_inputs(self, request: TimelineRequest) -> tuple[int, ...]:
        result = self.trace(request).inputs
        return tuple(result[chosen] for _layer, chosen in self.layers(request.recomputing))

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
        return ExpandedTrace(self.structure(leaves, *_how(request)), self.trace(request))

    def _by_itself(self, request: TimelineRequest, leaves: LeafModules) -> ExpandedTrace:
        """Its own layers ran: what one keeps, and for whom, depends on the next one."""
        if ran_as(self.root, request.recomputing) == request.recomputing:
            return self.expanded(request, leaves)
        layers = representatives(self.root, request.recomputing)
        return ExpandedTrace(
            Structure(self.root, self._order(leaves, *_how(request)), layers), run_trace(self.root, run_of(request))
        )

    def _named(self, request: TimelineRequest, leaves: LeafModules) -> ExpandedTrace:
        """The expanded trace of a tree whose sizes have names."""
        from zeroplan.architectures.saved_activations import with_named_batch

        root, _sizes = self.names()
        order = self._order(leaves, *_how(request))
        layers = representatives(root, request.recomputing)
        return ExpandedTrace(Structure(root, order, layers), run_trace(root, run_of(with_named_batch(request))))

    def _structure(self, leaves: LeafModules, *how: Any) -> Structure:
        return Structure(self.root, self._order(leaves, *how), self.layers(how[-1]))

    def _order(
        self, leaves: LeafModules, eager: bool, flash: bool, kernels: str, recomputing: Recomputing
    ) -> Execution:
        return self.executes(leaves, eager=eager, flash=flash, kernels=kernels, recomputing=recomputing)

    def layers(self, recomputing: Recomputing) -> list[tuple[int, int]]:
        """Each layer, and its representative in the trace."""
        return representatives(self.root, recomputing, ran_as(self.root, recomputing))

    def trace(self, request: TimelineRequest) -> Trace:
        """The trace of the representative layers; what gives the same trace runs once."""
        return self.ran(request._replace(recomputing=ran_as(self.root, request.recomputing)))

    def _ran(self, request: TimelineRequest) -> Trace:
        if is_even(request):
            return self.with_many(request._replace(batch=MANY)).at(request.batch)
        return run_trace(self.root, run_of(request))

    def _with_many(self, request: TimelineRequest) -> BatchScaledTrace:
        return batch_scaled(run_trace(self.root, run_of(request)))


def _how(request: TimelineRequest) -> tuple[bool, bool, str, Recomputing]:
    """What decides the order of execution, beside leaf modules."""
    return request.eager, request.flash, request.kernels, request.recomputing
