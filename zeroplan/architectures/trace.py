"""What a step of a model has alive, moment by moment: some of its layers run, the others are like one of them.

A layer stands for others of the same make; what lies between two of its moments does not
depend on how many layers there are, only what the others before it keep.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from zeroplan.architectures.module import GradientCheckpointingLayer, Module
from zeroplan.architectures.running import Run
from zeroplan.autograd.engine import Engine
from zeroplan.autograd.log import Log
from zeroplan.autograd.memory import ENTER, LEAVE, Beat

KEPT_TREES = 8


class Trace(NamedTuple):
    """Beats of forward and of backward, as run."""

    forward: tuple[Beat, ...]
    backward: tuple[Beat, ...]
    keeps: dict[int, int]
    """What a layer that ran leaves behind in forward."""
    log: Log
    """Of both passes, one after the other."""
    saved: int
    """Of the layers that ran: live when forward has returned and only the loss is held."""


def traced(root: Module, run: Run) -> Trace:
    """Run forward and backward once."""
    layers = representatives(root)
    ran = {chosen for _layer, chosen in layers}
    run.passed_over = frozenset(layer for layer, _chosen in layers) - ran
    forward: list[Beat] = []
    backward: list[Beat] = []
    run.beats = forward
    loss = root(run, run.ids())
    saved = run.live
    run.beat("loss", 0)
    run.beats = backward
    run.look_again()
    Engine().run(loss)
    del loss
    return Trace(tuple(forward), tuple(backward), kept(forward, ran), run.log, saved)


@lru_cache(maxsize=KEPT_TREES)
def layers_of(root: Module) -> list[Module]:
    """The layers that checkpointing knows, in order."""
    return [module for _path, module in root.named_modules() if isinstance(module, GradientCheckpointingLayer)]


@lru_cache(maxsize=KEPT_TREES)
def representatives(root: Module) -> list[tuple[int, int]]:
    """Of each layer, in order: itself and the layer that runs for it, by identity.

    The first layer of each make and the last of all stand for themselves, the others for the next of their make.

    What layers of one make share (cosines, a mask) goes with the first of them in backward.
    """
    first: set[Hashable] = set()
    found: dict[Hashable, int] = {}
    pairs = []
    layers = layers_of(root)
    for layer in layers:
        kind = make(layer)
        if kind not in first or layer is layers[-1]:
            first.add(kind)
            pairs.append((id(layer), id(layer)))
        else:
            pairs.append((id(layer), found.setdefault(kind, id(layer))))
    return pairs


def make(module: Module) -> Hashable:
    """What tells layers apart: the modules, the shapes of their parameters, and the kind of attention."""
    shapes = tuple([parameter.shape for parameter in module.parameters.values()])
    return type(module), shapes, getattr(module, "kind", ""), tuple([make(child) for child in module.children.values()])


def first_parameter(module: Module) -> int:
    """The parameter registered first in a module or below, by identity."""
    for parameter in module.parameters.values():
        return id(parameter)
    for child in module.children.values():
        if found := first_parameter(child):
            return found
    return 0


def kept(forward: Sequence[Beat], ran: set[int]) -> dict[int, int]:
    """Live bytes when what follows a layer begins, less those when the layer did: its own input may have gone."""
    entered = {beat.of: beat.now for beat in forward if beat.kind == ENTER and beat.of in ran}
    return {
        beat.of: after.now - entered[beat.of]
        for beat, after in pairwise(forward)
        if beat.kind == LEAVE and beat.of in ran
    }
