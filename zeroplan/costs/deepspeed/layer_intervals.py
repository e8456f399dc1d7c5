"""Forward and backward as module hooks, and the runs of identical layers in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from zeroplan.architectures.identical_layers import cycles
from zeroplan.costs.deepspeed.events import LayerOffset
from zeroplan.specs.execution import LayerPosition, ModuleHook


class LayerInterval(NamedTuple):
    """The hooks of a layer in one pass, or of several that lie one after the other."""

    pass_index: int
    """Which pass: 0 forward, 1 backward."""
    end: int
    """Number of the pass's hooks up to its last one."""
    layer: LayerPosition
    step: int
    """The coordinator's step after it."""


class Passes(NamedTuple):
    """The two passes of a micro-step."""

    hooks: tuple[Sequence[ModuleHook], Sequence[ModuleHook]]
    """Hooks of forward, and of backward."""
    intervals: Sequence[LayerInterval]
    """Layers, in both."""


class RepeatedLayers(NamedTuple):
    """Identical layers that lie one after the other in a pass, each as far from the one before."""

    start: int
    """Number of the first one's first hook, in its pass."""
    offset: LayerOffset
    layers: int


def layer_offset(one: LayerInterval, other: LayerInterval) -> LayerOffset:
    """The offset from one layer of a pass to an identical one."""
    here, there = one.layer, other.layer
    return LayerOffset(other.end - one.end, there.tensor - here.tensor, there.module - here.module)


def repeated_layers(found: Passes, pass_index: int) -> list[RepeatedLayers]:
    """Runs of identical layers in forward (0) or backward (1); the first layer only tells where the second begins."""
    runs: list[RepeatedLayers] = []
    for first, last in pairwise([each for each in found.intervals if each.pass_index == pass_index]):
        by, other = layer_offset(first, last), last.layer
        before = runs[-1] if runs and other.like == first.layer.like else None
        if before and before.offset == by and before.layers:
            runs[-1] = before._replace(layers=before.layers + 1)
        else:
            own = is_all_its_own(found.hooks[pass_index][first.end : last.end], other, by)
            runs.append(RepeatedLayers(first.end, by, int(own)))
    return [run for run in runs if run.layers > 1]


def is_all_its_own(hooks: Sequence[ModuleHook], layer: LayerPosition, by: LayerOffset) -> bool:
    """Whether all hooks of a layer are of modules and tensors that its number tells from the layer's before."""
    modules = range(layer.module, layer.module + abs(by.modules))
    tensors = range(layer.tensor, layer.tensor + layer.tensors)
    return all(hook.module in modules and all(index in tensors for index in hook.tensors) for hook in hooks)


def layer_intervals(passes: Sequence[Sequence[ModuleHook]], layers: Sequence[LayerPosition]) -> Iterator[LayerInterval]:
    """One interval for each layer, or, where kinds of layers take turns, for each turn."""
    places, step = {layer.module: layer for layer in layers}, 0
    for pass_index, hooks in enumerate(passes):
        found: list[LayerInterval] = []
        for end, (enters, module, _tensors, in_backward) in enumerate(hooks, 1):
            if enters:
                step += 1
            elif module in places and in_backward == pass_index:
                found.append(LayerInterval(pass_index, end, places[module], step))
        for start, period, times in cycles([each.layer.like for each in found]):
            for first in range(start, start + times * period, period):
                yield joined(found[first : first + period], like=start)


def joined(turns: Sequence[LayerInterval], like: int) -> LayerInterval:
    """Layers that lie one after the other as one, numbered as its kind."""
    modules, tensors, counts, _likes = zip(*[each.layer for each in turns], strict=True)
    return turns[-1]._replace(layer=LayerPosition(min(modules), min(tensors), sum(counts), like))
