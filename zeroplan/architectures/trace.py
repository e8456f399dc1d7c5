"""What a step of a model has allocated, event by event: its representative layers run, the others are like one of them.

A representative layer runs for all that are identical; what lies between two of its events does not
depend on how many layers there are, only what the others before it keep.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.identical_layers import checkpointed_layers, input_embeddings, representatives
from zeroplan.architectures.module import KEPT_TREES, Module, tree_parameters
from zeroplan.autograd.autocast import autocast
from zeroplan.autograd.engine import Engine
from zeroplan.autograd.log import FREED, MADE, Log
from zeroplan.autograd.memory import ENTER, LEAVE, AllocationEvent
from zeroplan.autograd.tensor import Tensor
from zeroplan.specs.model import TimelineRequest


class EventColumns(NamedTuple):
    """Allocation events of one pass, field by field as `AllocationEvent` has them."""

    kinds: Sequence[str]
    identities: Sequence[int]
    layers: Sequence[int]
    max_allocated: Sequence[int]
    allocated: Sequence[int]


class Trace(NamedTuple):
    """Allocation events of forward and of backward, as run."""

    forward: EventColumns
    backward: EventColumns
    keeps: dict[int, int]
    """What a layer that ran leaves behind in forward."""
    drops: dict[int, int]
    """And what of that goes when forward returns: copies that autocast made of weights and no operator keeps."""
    log: Callable[[], Log]
    """The log of both passes, one after the other."""
    saved: int
    """Bytes of the layers that ran, allocated when forward has returned and only the loss is held."""
    flops: Counter[tuple[str, int, bool]]
    """As `Memory.flops`."""
    inputs: dict[int, int]
    """Bytes of the inputs that were offloaded, by layer."""


@lru_cache(maxsize=KEPT_TREES)
def identities(root: Module, places: frozenset[int]) -> frozenset[int]:
    """Parameters of a tree, by their places among `named_parameters`."""
    return frozenset(id(p) for place, (_name, p) in enumerate(tree_parameters(root)) if place in places)


def run_of(request: TimelineRequest, root: Module) -> ForwardRun:
    """A run of this tree as a job asks for it."""
    run = ForwardRun(
        request.width, request.batch, request.seq, attention=request.attention, kernel=request.kernel,
        recomputing=request.recomputing, half=request.half, kernels=request.kernels,
        autocast_bytes=request.autocast_bytes, loaded=request.loaded,
    )  # fmt: skip
    run.zero_linear = request.zero_linear
    if request.frozen:
        run.frozen, run.wide = identities(root, request.frozen), identities(root, request.wide)
    return run


def checkpoint_layers(root: Module, run: ForwardRun) -> None:
    """Choose the layers of this tree that are, and its input embeddings (enable_input_require_grads)."""
    run.checkpointed = checkpointed_layers(root, run.recomputing)
    run.opens = input_embeddings(root) if run.checkpointed else frozenset()


def run_forward(root: Module, run: ForwardRun) -> Tensor:
    """The loss; torch.autocast is left when it is there."""
    with autocast(run, run.autocast_bytes):
        loss: Tensor = root(run, run.ids())
    return loss


def run_step(root: Module, run: ForwardRun) -> dict[str, int]:
    """Bytes over what is held before forward: saved for backward, and the peaks of forward and of backward."""
    checkpoint_layers(root, run)
    loss: Any = run_forward(root, run)
    saved, peak = run.allocated, run.max_allocated
    run.reset_peak()
    Engine().run(loss)
    del loss
    return {"saved": saved, "forward_peak": peak, "backward_peak": run.max_allocated}


def run_trace(root: Module, run: ForwardRun, layers: list[tuple[int, int]] | None = None) -> Trace:
    """Run forward and backward once; `layers`: as `representatives` has them, where all trains left out."""
    layers = representatives(root, run.recomputing) if layers is None else layers
    checkpoint_layers(root, run)
    ran = {chosen for _layer, chosen in layers}
    run.passed_over = frozenset(layer for layer, _chosen in layers) - ran
    forward: list[AllocationEvent] = []
    backward: list[AllocationEvent] = []
    run.events = forward
    loss = run_forward(root, run)
    saved, drops = run.allocated, dropped(run)
    run.record_event("loss", 0)
    run.events = backward
    run.reset_peak()
    Engine().run(loss)
    del loss
    inputs = run.input_offload.sizes if run.input_offload else {}
    log, of_forward = run.log, columns(forward)
    kept = kept_by_layer(of_forward, ran)
    return Trace(of_forward, columns(backward), kept, drops, lambda: log, saved, run.flops, inputs)


def columns(events: Sequence[AllocationEvent]) -> EventColumns:
    """Events, field by field."""
    return EventColumns._make(zip(*events, strict=True))


def kept_by_layer(forward: EventColumns, ran: set[int]) -> dict[int, int]:
    """Live bytes when what follows a layer begins, less those when the layer did: its own input may have gone."""
    entered: dict[int, int] = {}
    result: dict[int, int] = {}
    for at, (kind, identity) in enumerate(zip(forward.kinds, forward.identities, strict=True)):
        if identity in ran:
            if kind == ENTER:
                entered[identity] = forward.allocated[at]
            elif kind == LEAVE:
                result[identity] = forward.allocated[at + 1] - entered[identity]
    return result


def dropped(run: ForwardRun) -> dict[int, int]:
    """Bytes that the outermost autocast forgot and nothing else holds, by the layer that they were made in."""
    forgotten = set(run.forgotten)
    freed = {entry[1] for entry in run.log if entry[0] == FREED and entry[1] in forgotten} if forgotten else ()
    result: dict[int, int] = {}
    for entry in run.log if freed else ():
        if entry[0] == MADE and entry[1] in freed:
            result[entry[4]] = result.get(entry[4], 0) + entry[2]
    return result
