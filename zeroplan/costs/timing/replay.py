"""Two clocks run through a pass's events: the work's, and the network's, which does one thing after the other."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.timing.order import GATHER, WAIT, Event


def waiting(events: Sequence[Event], work: float, gathers: float, reductions: float) -> float:
    """Seconds that a pass of this much work waits for its traffic, as if neither slowed the other down.

    `gathers`, `reductions`: seconds of all of the pass's, each call's by its size.
    """
    waited = network = 0.0
    ended: list[float] = []
    for kind, done, size, number in events:
        now = done * work + waited
        if kind == WAIT:
            waited += max(0.0, ended[number] - now)
        elif kind == GATHER:
            network += size * gathers
            ended.append(network)
        else:
            network = max(network, now) + size * reductions
            ended.append(network)
    return waited + max(0.0, network - work - waited)
