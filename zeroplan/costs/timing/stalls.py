"""How long a pass waits for collectives that are issued while it works.

Two clocks run through a pass's events: the work's, and the network's, which does one thing after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from zeroplan.costs.cache import cached_per_execution
from zeroplan.costs.engine import FOR_GATHER, FOR_REDUCTION, GATHER, IssuedEvent
from zeroplan.costs.timing.work import multiplied_with
from zeroplan.specs.execution import ModuleHook
from zeroplan.specs.job import Job


def stall_seconds(
    events: Sequence[IssuedEvent], done: Sequence[float], work: float, gathers: float, reductions: float
) -> float:
    """Seconds that a pass of this much work waits for its traffic, as if neither slowed the other down.

    `done`: the share of the work before each hook. `gathers`, `reductions`: seconds of all of the pass's, each call's
    by its size.
    """
    waited = network = 0.0
    gathered: list[float] = []
    reduced: list[float] = []
    for kind, at, size, number in events:
        if kind == GATHER:
            network += size * gathers
            gathered.append(network)
        elif kind == FOR_GATHER:
            if (stall := gathered[number] - done[at] * work - waited) > 0:
                waited += stall
        elif kind == FOR_REDUCTION:
            if (stall := reduced[number] - done[at] * work - waited) > 0:
                waited += stall
        else:
            if (now := done[at] * work + waited) > network:
                network = now
            network += size * reductions
            reduced.append(network)
    return waited + max(0.0, network - work - waited)


@cached_per_execution
def forward_progress(job: Job) -> list[float]:
    """`progress` of forward."""
    return progress(job, job.execution.forward)


@cached_per_execution
def backward_progress(job: Job) -> list[float]:
    """`progress` of backward."""
    return progress(job, job.backward_hooks)


def progress(job: Job, hooks: Sequence[ModuleHook]) -> list[float]:
    """Share of the pass's work before each hook, and 1 at the end.

    A module's work is what tokens are multiplied with there, twice in backward; of a tied table, the head's, which no
    layer has.
    """
    elements, heads = multiplied_with(job.model)
    result: list[float] = []
    using: dict[int, list[tuple[int, bool]]] = {}
    """The hooks that read each head, and whether they are backward's."""
    for at, (enters, _module, tensors, backward) in enumerate(hooks):
        reads = tensors if enters else ()
        result.append((1 + backward) * sum([elements[index] for index in reads if index not in heads]))
        for index in heads.intersection(reads):
            using.setdefault(index, []).append((at, backward))
    for index, places in using.items():
        at, backward = places[0 if hooks[0].backward else -1]
        result[at] += (1 + backward) * elements[index]
    total = sum(result)
    return [each / total for each in accumulate(result, initial=0.0)] if total else [1.0] * (len(result) + 1)
