"""Two clocks run through a pass's events: the work's, and the network's, which does one thing after the other."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.timing.order import FOR_GATHER, FOR_REDUCTION, GATHER, StreamEvent


def stall_seconds(events: Sequence[StreamEvent], work: float, gathers: float, reductions: float) -> float:
    """Seconds that a pass of this much work waits for its traffic, as if neither slowed the other down.

    `gathers`, `reductions`: seconds of all of the pass's, each call's by its size.
    """
    waited = network = 0.0
    gathered: list[float] = []
    reduced: list[float] = []
    for kind, done, size, number in events:
        if kind == GATHER:
            network += size * gathers
            gathered.append(network)
        elif kind == FOR_GATHER:
            if (stall := gathered[number] - done * work - waited) > 0:
                waited += stall
        elif kind == FOR_REDUCTION:
            if (stall := reduced[number] - done * work - waited) > 0:
                waited += stall
        else:
            if (now := done * work + waited) > network:
                network = now
            network += size * reductions
            reduced.append(network)
    return waited + max(0.0, network - work - waited)
