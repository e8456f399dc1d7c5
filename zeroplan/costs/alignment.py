"""DeepSpeed's events along a pass of the model: the interval each falls into, and of identical layers' those that
matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.allocations import END, START
from zeroplan.specs.execution import PassTimeline


def intervals_reached(keys: Sequence[int], activations: PassTimeline) -> list[int]:
    """The interval that a pass has ended by each of DeepSpeed's events; -1 before the first."""
    hooks, ready, at, result = activations.hooks, activations.ready, -1, []
    for key in keys:
        if key < 0:
            to = ready.get(~key, at)
        elif key < END:
            to = hooks[key]
        else:
            to = at if key == START else len(activations.most) - 1
        at = max(at, to)
        result.append(at)
    return result
