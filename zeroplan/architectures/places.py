"""Where in the model an interval of the full pass lies, and which layers have run by then."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.architectures.structure import OUTSIDE, Structure
from zeroplan.architectures.timeline import ExpandedTrace
from zeroplan.architectures.trace import EventColumns
from zeroplan.autograd.memory import ENTER, READY

Ender = tuple[str, int]
"""The kind of an event that ends an interval, and its module's identity."""


class IntervalSource(NamedTuple):
    interval: int
    offset: int
    there: list[int]
    """The representatives of those that have run forward and not yet backward, each as often as it does."""
    ran: list[int]
    """Those of them that are in the trace by themselves."""
    module: str
    """The path of the module at work, empty for the model itself."""


def interval_source(expanded: ExpandedTrace, *, backward: bool, at: int) -> IntervalSource:
    """The interval of the trace that represents one of the full pass, and which layers it lacks."""
    structure = expanded.structure
    expanded_pass = expanded.backward if backward else expanded.forward
    block = next(block for block in reversed(expanded_pass.blocks) if block.start <= at)
    after_layers = block is expanded_pass.blocks[-1]
    count = len(structure.representative)
    before = block.layer if block.layer != OUTSIDE else 0 if after_layers == backward else count
    known = structure.representative[block.layer] if block.layer != OUTSIDE else before
    keys = [key for key, _chosen in structure.layers]
    there = [keys[structure.representative[number]] for number in range(before)]
    ran = [keys[number] for number in expanded_pass.ran if number < known]
    offset = expanded_pass.offsets[block.layer] if block.layer != OUTSIDE else expanded_pass.end if before else 0
    interval = block.ran + at - block.start
    module = _module(structure, _enders(expanded_pass.events)[interval], block.layer)
    return IntervalSource(interval, offset, there, ran, module)


def places(expanded: ExpandedTrace, *, backward: bool) -> list[str]:
    """The path of the module at work in each interval of the full pass."""
    expanded_pass = expanded.backward if backward else expanded.forward
    enders = _enders(expanded_pass.events)
    return [
        _module(expanded.structure, enders[at], block.layer)
        for block in expanded_pass.blocks
        for at in range(block.ran, block.ran_end)
    ]


def _enders(events: EventColumns) -> list[Ender | None]:
    """For each event the next one at which a module is entered, left or has run: gradients get ready on the way."""
    result: list[Ender | None] = []
    following: Ender | None = None
    for kind, identity in zip(reversed(events.kinds), reversed(events.identities), strict=True):
        following = following if kind == READY else (kind, identity)
        result.append(following)
    return result[::-1]


def _module(structure: Structure, event: Ender | None, layer: int) -> str:
    """Where the interval belongs that this event ends; `layer` is the one that it represents."""
    path = structure.paths.get(event[1], "") if event else ""
    if event and event[0] == ENTER:
        path = path.rpartition(".")[0]
    if layer == OUTSIDE:
        return path
    own, ran = (structure.paths[key] for key in structure.layers[layer])
    return own + path.removeprefix(ran) if path.startswith(ran) else path
