"""A trace expanded over all layers of the model, and where DeepSpeed's hooks fall in it.

Allocation events, hooks and gradients are matched for the layers that ran; those of another layer lie as far from its
start.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple

from zeroplan.architectures.structure import OUTSIDE, Structure
from zeroplan.architectures.trace import EventColumns, Trace
from zeroplan.autograd.memory import ENTER, LEAVE, RAN, READY
from zeroplan.specs.execution import ModuleHook, PassTimeline, Timeline

EventsOfModule = dict[int, list[int]]
"""Allocation events of each module's calls, in order."""


class TraceSegment(NamedTuple):
    """Consecutive events: of a layer, or outside of all."""

    layer: int
    ran: int
    """Where the events of its representative start in the trace, and where they end."""
    ran_end: int
    start: int
    """Where these start."""
    before: int
    """Layers that have run forward and not yet backward; a layer itself is not one of them."""


class ExpandedTrace:
    """A trace whose passes are expanded over all layers of a tree."""

    def __init__(self, structure: Structure, trace: Trace) -> None:
        self.structure, self.trace = structure, trace
        kept = {structure.numbers[key]: size for key, size in trace.keeps.items()}
        stay = {structure.numbers[key]: size - trace.drops.get(key, 0) for key, size in trace.keeps.items()}
        self.forward = _ExpandedPass(structure, trace.forward, kept, backward=False)
        self.backward = _ExpandedPass(structure, trace.backward, stay, backward=True)
        self.saved = trace.saved + self.backward.end
        self.forward.dropped = self.forward.end - self.backward.end


def timeline(expanded: ExpandedTrace, *, recomputes: bool) -> Timeline:
    """Both passes, with the places of DeepSpeed's hooks and of gradients in them."""
    execution, forward, backward = expanded.structure.execution, expanded.forward, expanded.backward
    hooks = execution.recomputing if recomputes else execution.backward
    return Timeline(
        PassTimeline(forward, execution.forward, 0),
        PassTimeline(backward, hooks, expanded.saved),
        expanded.saved,
    )


class _ExpandedPass:
    """One pass: its events as they ran, and the blocks of all layers."""

    def __init__(
        self, structure: Structure, events: EventColumns, kept: dict[int, int], *, backward: bool
    ) -> None:
        """`kept`: by each layer that ran."""
        self.structure, self.events, self.is_backward = structure, events, backward
        self.ran = sorted(kept)
        before_ran = dict(zip(self.ran, accumulate((kept[number] for number in self.ran), initial=0), strict=False))
        in_full = [kept[other] for other in structure.representative]
        before = accumulate(in_full, initial=0)
        self.offsets = [held - before_ran[other] for held, other in zip(before, structure.representative, strict=False)]
        """What the layers before one keep, less those of them that ran."""
        lacks = [size - kept.get(number, 0) for number, size in enumerate(in_full)]
        self.outside = [*accumulate(lacks, initial=0)]
        """The same for what runs outside of all layers, by how many of them have run."""
        self.end = self.outside[-1]
        self.dropped = 0
        """The part of `end` that is freed when the pass returns."""
        self.blocks = self._blocks(backward)

    def _blocks(self, backward: bool) -> list[TraceSegment]:
        """What ran outside as it ran, and each layer as its representative."""
        numbers, events, representative = self.structure.numbers, self.events, self.structure.representative
        inside = [numbers[layer] if layer else OUTSIDE for layer in events.layers]
        if not backward:  # a layer enters before it is known, and its number is gone when it has left
            for at, (kind, identity) in enumerate(zip(events.kinds, events.identities, strict=True)):
                if kind == ENTER and identity in numbers:
                    inside[at] = numbers[identity]
        ran: dict[int, tuple[int, int]] = {}
        blocks: list[TraceSegment] = []
        at, before = 0, len(representative) if backward else 0
        for layer, group in groupby(inside):
            size = len(list(group))
            if layer != OUTSIDE:
                ran[layer] = (at, at + size)
                before = layer
            blocks.append(TraceSegment(layer, at, at + size, at, before))
            before += layer != OUTSIDE and not backward
            at += size
        if not self.structure.chains:  # all ran, but for those that backward does not reach
            absent = [number for number in range(len(representative)) if number not in ran]
            return blocks + [TraceSegment(number, at, at, at, number) for number in absent]
        size = len(inside)  # where nothing in the layers trains, or before them, backward does not reach them
        blocks, at, start = [], 0, 0
        for chain in reversed(self.structure.chains) if backward else self.structure.chains:
            own = [ran[number] for number in {representative[layer] for layer in chain} if number in ran]
            first = min((begin for begin, _end in own), default=size)
            blocks.append(TraceSegment(OUTSIDE, at, first, start, chain.stop if backward else chain.start))
            start += first - at
            end = first
            for layer in reversed(chain) if backward else chain:
                begin, end = ran.get(representative[layer], (end, end))
                blocks.append(TraceSegment(layer, begin, end, start, layer))
                start += end - begin
            at = max((end for _begin, end in own), default=size)
        blocks.append(TraceSegment(OUTSIDE, at, size, start, 0 if backward else len(representative)))
        return blocks

    @cached_property
    def levels(self) -> tuple[array[int], array[int]]:
        """Bytes at most in each interval and at its end, over all layers."""
        most, now = array("q"), array("q")
        for block in self.blocks:
            offset = self.offset_of(block)
            own = slice(block.ran, block.ran_end)
            most.extend([size + offset for size in self.events.max_allocated[own]])
            now.extend([size + offset for size in self.events.allocated[own]])
            if self._follows(block):
                most[block.start] = now[block.start]  # what was before it is the last layer's
        now[-1] -= self.dropped
        return most, now

    @cached_property
    def fullest(self) -> tuple[int, int]:
        """Without writing out `levels`: a layer's events are looked at where they ran."""
        ran: dict[int, tuple[int, int]] = {}
        best, at = -1, 0
        for block in self.blocks:
            if block.ran == block.ran_end:
                continue
            if block.ran not in ran:
                most = [*self.events.max_allocated[block.ran : block.ran_end]]
                if self._follows(block):
                    most[0] = self.events.allocated[block.ran]  # what was before it is the last layer's
                ran[block.ran] = max(most), most.index(max(most))
            size, place = ran[block.ran]
            if size + self.offset_of(block) > best:
                best, at = size + self.offset_of(block), block.start + place
        return best, at

    def level(self, at: int) -> tuple[int, int]:
        """Bytes at most in one interval and at its end, without working out the others."""
        block = next(block for block in reversed(self.blocks) if block.start <= at)
        offset = self.offset_of(block)
        event = block.ran + at - block.start
        most, now = self.events.max_allocated[event], self.events.allocated[event]
        enters = at == block.start and self._follows(block)
        return (now if enters else most) + offset, now + offset

    def offset_of(self, block: TraceSegment) -> int:
        """What layers keep that did not run before this block's events."""
        return self.offsets[block.layer] if block.layer != OUTSIDE else self.outside[block.before]

    def _follows(self, block: TraceSegment) -> bool:
        """Whether it is of a layer that forward enters from another."""
        chained = bool(self.structure.chains) and block.layer not in self.structure.starts
        return not self.is_backward and block.layer != OUTSIDE and chained

    @cached_property
    def block_of(self) -> dict[int, TraceSegment]:
        return {block.layer: block for block in reversed(self.blocks) if block.layer != OUTSIDE}

    def align(self, hooks: Sequence[ModuleHook]) -> array[int]:
        """Where each hook falls: matched outside and in layers that ran, shifted in the others."""
        layer_of, representative = self.structure.layer_of, self.structure.representative
        result = array("i")
        matched: dict[int, list[int]] = {}
        firsts, reached = self.structure.first_module, -1
        for layer, pieces in groupby(hooks, lambda hook: layer_of[hook[1]]):
            group = list(pieces)
            if layer == OUTSIDE:
                result.extend([self._in_full(at) for at in self._matched(group, reached)])
                continue
            block, like = self.block_of[layer], representative[layer]
            if like not in matched:
                on = firsts[like] - firsts[layer]
                own = [hook._replace(module=hook.module + on) for hook in group] if on else group
                matched[like] = self._matched(own, block.ran - 1)
            reached = matched[like][-1]
            shift = block.start - block.ran
            result.extend([at + shift for at in matched[like]])
        return result

    def _in_full(self, at: int) -> int:
        """An event outside of the layers, in the full order."""
        outside = [block for block in self.blocks if block.layer == OUTSIDE]
        block = next((block for block in outside if at < block.ran_end), outside[-1])
        return at + block.start - block.ran

    def _matched(self, hooks: Sequence[ModuleHook], reached: int) -> list[int]:
        """The events at which hooks fall, from the one on that was reached before them.

        Forward, the first time and again, enters and leaves modules in order. Backward enters a module before its first
        node and leaves it after its last; what has no nodes, or does not run, falls where the others are.
        """
        result: list[int] = []
        for hook in hooks:
            first, last = self.extents if hook.backward else self.moves
            calls = (first if hook.enters else last).get(hook.module, ())
            reached = next((at for at in calls if at >= reached), reached)
            result.append(reached)
        return result

    @cached_property
    def moves(self) -> tuple[EventsOfModule, EventsOfModule]:
        """The events at which forward enters and leaves each module, call by call."""
        entered: EventsOfModule = defaultdict(list)
        left: EventsOfModule = defaultdict(list)
        for at, (kind, identity) in enumerate(zip(self.events.kinds, self.events.identities, strict=True)):
            if kind in (ENTER, LEAVE):
                place = self.structure.places.get(identity, OUTSIDE)
                (entered if kind == ENTER else left)[place].append(at)
        return entered, left

    @cached_property
    def extents(self) -> tuple[EventsOfModule, EventsOfModule]:
        """The events before the first node and at the last node of each module's calls, with all that lies in it."""
        first: EventsOfModule = defaultdict(list)
        last: EventsOfModule = defaultdict(list)
        inside: tuple[int, ...] = ()
        start = -1
        for at, (kind, identity) in enumerate(zip(self.events.kinds, self.events.identities, strict=True)):
            if kind == RAN:
                before, inside = inside, self.structure.around.get(identity, ())
                for module in inside:
                    if module not in before:
                        first[module].append(start)
                        last[module].append(at)
                    last[module][-1] = at
            if kind != READY:
                start = at  # gradients that get ready on the way belong to what follows
        return first, last

    def ready(self) -> dict[int, int]:
        """Where each tensor's gradient is."""
        structure = self.structure
        tensors, firsts, representative = structure.tensors, structure.first_tensor, structure.representative
        result: dict[int, int] = {}
        ran: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for block in self.blocks:
            own = block.ran, block.ran_end
            if block.layer == OUTSIDE:
                result.update({index: at + block.start for index, at in self._gradients(block, tensors)})
                continue
            if own not in ran:
                ran[own] = list(self._gradients(block, tensors))
            on = firsts[block.layer] - firsts[representative[block.layer]]
            result.update({index + on: at + block.start for index, at in ran[own]})
        return result

    def _gradients(self, block: TraceSegment, tensors: dict[int, int]) -> Iterator[tuple[int, int]]:
        own = slice(block.ran, block.ran_end)
        for at, (kind, identity) in enumerate(zip(self.events.kinds[own], self.events.identities[own], strict=True)):
            if kind == READY:
                yield tensors[identity], at
