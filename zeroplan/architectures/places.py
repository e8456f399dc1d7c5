"""Where in the model a stretch of the full pass lies, and which layers have run by then."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.architectures.structure import OUTSIDE, Structure
from zeroplan.architectures.timeline import Laid
from zeroplan.autograd.memory import ENTER, READY, Beat
from zeroplan.record import NamedTuple


class Ran(NamedTuple):
    stretch: int
    offset: int
    there: list[int]
    """The layers that stand for those that have run forward and not yet backward, each as often as it does."""
    ran: list[int]
    """Those of them that are in the trace by themselves."""
    module: str
    """The path of the module at work, empty for the model itself."""


def ran_for(laid: Laid, *, backward: bool, at: int) -> Ran:
    """The stretch of the trace that stands for one of the full pass, and which layers it lacks."""
    structure = laid.structure
    laying = laid.backward if backward else laid.forward
    block = next(block for block in reversed(laying.blocks) if block.start <= at)
    late = block is laying.blocks[-1]
    count = len(structure.stands_for)
    before = block.layer if block.layer != OUTSIDE else 0 if late == backward else count
    known = structure.stands_for[block.layer] if block.layer != OUTSIDE else before
    keys = [key for key, _chosen in structure.layers]
    there = [keys[structure.stands_for[number]] for number in range(before)]
    ran = [keys[number] for number in laying.ran if number < known]
    offset = laying.offsets[block.layer] if block.layer != OUTSIDE else laying.end if before else 0
    stretch = block.ran + at - block.start
    module = _module(structure, _enders(laying.beats)[stretch], block.layer)
    return Ran(stretch, offset, there, ran, module)


def places(laid: Laid, *, backward: bool) -> list[str]:
    """Of each stretch of the full pass the path of the module at work."""
    laying = laid.backward if backward else laid.forward
    enders = _enders(laying.beats)
    return [
        _module(laid.structure, enders[at], block.layer)
        for block in laying.blocks
        for at in range(block.ran, block.ran_end)
    ]


def _enders(beats: Sequence[Beat]) -> list[Beat | None]:
    """Of each beat the next at which a module is entered, left or has run: gradients get ready on the way."""
    found: list[Beat | None] = []
    following: Beat | None = None
    for beat in reversed(beats):
        following = following if beat.kind == READY else beat
        found.append(following)
    return found[::-1]


def _module(structure: Structure, beat: Beat | None, layer: int) -> str:
    """Where the stretch belongs that this beat ends; `layer` is the one that it stands for."""
    path = structure.paths.get(beat.of, "") if beat else ""
    if beat and beat.kind == ENTER:
        path = path.rpartition(".")[0]
    if layer == OUTSIDE:
        return path
    own, ran = (structure.paths[key] for key in structure.layers[layer])
    return own + path.removeprefix(ran) if path.startswith(ran) else path
