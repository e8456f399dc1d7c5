"""A trace laid out over all layers of the model, and where DeepSpeed's hooks fall in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from zeroplan.architectures.module import Module
from zeroplan.architectures.trace import Trace
from zeroplan.autograd.memory import ENTER, LEAVE, RAN, READY, Beat
from zeroplan.specs.model import Execution, Pass, Timeline, Visit


class Laid(NamedTuple):
    """Beats of one pass over all layers."""

    most: list[int]
    now: list[int]
    kinds: list[str]
    of: list[int]
    """The module's place in `Execution.modules`, -1 for one without hooks; of READY the tensor."""


class Layout:
    """Places of modules and tensors, and what the layers that did not run add."""

    def __init__(self, root: Module, execution: Execution, trace: Trace) -> None:
        self.trace = trace
        paths = {id(module): path for path, module in root.named_modules()}
        places = {path: place for place, path in enumerate(execution.modules)}
        self.places = {key: places.get(path, -1) for key, path in paths.items()}
        self.tensors: dict[int, int] = {}
        for _path, parameter in root.named_parameters():
            self.tensors[id(parameter)] = len(self.tensors)
        self.parents = {place: places.get(path.rpartition(".")[0], 0) for path, place in places.items()}
        modules = {id(module): module for _path, module in root.named_modules()}
        self.layers = {key: modules[key] for key, _chosen in trace.stands_for}
        ran = dict.fromkeys(chosen for _layer, chosen in trace.stands_for)
        before_ran = dict(zip(ran, accumulate((trace.keeps[key] for key in ran), initial=0), strict=False))
        before = accumulate((trace.keeps[chosen] for _layer, chosen in trace.stands_for), initial=0)
        self.offsets = [
            held - before_ran[chosen] for held, (_layer, chosen) in zip(before, trace.stands_for, strict=False)
        ]
        self.end = sum(trace.keeps[chosen] for _l, chosen in trace.stands_for) - sum(trace.keeps[k] for k in ran)
        """What the layers that did not run keep, together."""

    def forward(self) -> Laid:
        """Before the layers, each of them, and after."""
        beats, laid = self.trace.forward, Laid([], [], [], [])
        starts = {beat.of: at for at, beat in enumerate(beats) if beat.kind == ENTER and beat.of in self.trace.keeps}
        ends = {beat.of: at for at, beat in enumerate(beats) if beat.kind == LEAVE and beat.of in self.trace.keeps}
        first, last = min(starts.values()), max(ends.values())
        self._lay(laid, beats[:first], 0)
        for offset, (layer, chosen) in zip(self.offsets, self.trace.stands_for, strict=True):
            self._lay(laid, beats[starts[chosen] : ends[chosen] + 1], offset, layer, chosen)
        self._lay(laid, beats[last + 1 :], self.end)
        return laid

    def backward(self) -> Laid:
        """After the layers, each of them from the last, and before."""
        beats, laid = self.trace.backward, Laid([], [], [], [])
        of_layers = [at for at, beat in enumerate(beats) if beat.layer]
        first, last = of_layers[0], of_layers[-1]
        blocks: dict[int, list[Beat]] = {}
        for beat in beats[first : last + 1]:
            blocks.setdefault(beat.layer, []).append(beat)
        self._lay(laid, beats[:first], self.end)
        for offset, (layer, chosen) in zip(reversed(self.offsets), reversed(self.trace.stands_for), strict=True):
            self._lay(laid, blocks[chosen], offset, layer, chosen)
        self._lay(laid, beats[last + 1 :], 0)
        return laid

    def _lay(self, laid: Laid, beats: Sequence[Beat], offset: int, layer: int = 0, chosen: int = 0) -> None:
        """Beats of `chosen`, as those of `layer`: its modules and tensors lie as far on as the layer itself does."""
        laid.most.extend([beat.most + offset for beat in beats])
        if layer and beats[0].kind == ENTER:
            laid.most[-len(beats)] = beats[0].now + offset  # what was before it is the last layer's
        laid.now.extend([beat.now + offset for beat in beats])
        laid.kinds.extend([beat.kind for beat in beats])
        on = self.places[layer] - self.places[chosen] if layer else 0
        tensors_on = self._first_tensor(layer) - self._first_tensor(chosen) if layer else 0
        places, tensors = self.places, self.tensors
        laid.of.extend([
            tensors[beat.of] + tensors_on if beat.kind == READY else _on(places.get(beat.of, -1), on) for beat in beats
        ])  # fmt: skip

    def _first_tensor(self, layer: int) -> int:
        return min(self.tensors[id(parameter)] for _path, parameter in self.layers[layer].named_parameters())


def _on(place: int, on: int) -> int:
    return place + on if place >= 0 else -1


def timeline(root: Module, execution: Execution, trace: Trace, *, recomputes: bool) -> Timeline:
    """Both passes, with the places of DeepSpeed's hooks and of gradients in them."""
    layout = Layout(root, execution, trace)
    forward, backward = layout.forward(), layout.backward()
    saved = trace.saved + layout.end
    visits = execution.recomputing if recomputes else execution.backward
    return Timeline(
        Pass(forward.most, forward.now, sequential(execution.forward, forward), {}, 0),
        Pass(backward.most, backward.now, around(visits, backward, layout), ready(backward), saved),
        saved,
    )


def sequential(visits: Iterable[Visit], laid: Laid) -> list[int]:
    """Where modules enter and leave forward: both orders are the same."""
    found, at = [], 0
    kinds, of = laid.kinds, laid.of
    for visit in visits:
        kind = ENTER if visit.enters else LEAVE
        while of[at] != visit.module or kinds[at] != kind:
            at += 1
        found.append(at)
    return found


def around(visits: Iterable[Visit], laid: Laid, layout: Layout) -> list[int]:
    """Where backward enters a module, before its first node, and leaves it, after its last.

    What a checkpointed layer runs again lies in between, in forward's order.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    parents, start = layout.parents, -1
    for at, (kind, place) in enumerate(zip(laid.kinds, laid.of, strict=True)):
        if kind == RAN:
            while place >= 0 and last.get(place) != at:
                first.setdefault(place, start)
                last[place] = at
                place = parents[place] if place else -1
        if kind != READY:
            start = at  # gradients that get ready on the way belong to what follows
    found, again = [], 0
    kinds, of = laid.kinds, laid.of
    for visit in visits:
        if visit.backward:
            at = first.get(visit.module, -1) if visit.enters else last.get(visit.module, 0)
        else:
            kind = ENTER if visit.enters else LEAVE
            at = again
            while at < len(of) and (of[at] != visit.module or kinds[at] != kind):
                at += 1
            if at < len(of):
                again = at
            else:
                at = again
        found.append(at)
    return found


def ready(laid: Laid) -> dict[int, int]:
    """Where each tensor's gradient is."""
    return {place: at for at, (kind, place) in enumerate(zip(laid.kinds, laid.of, strict=True)) if kind == READY}
