"""DeepSpeed's events along a pass of the model: the interval each falls into, and of identical layers' those that
matter.
"""

from __future__ import annotations

from zeroplan.costs.allocations import END, START
from zeroplan.specs.execution import PassTimeline


def interval_of(key: int, activations: PassTimeline, at: int) -> int:
    """The interval at whose end DeepSpeed's event falls; `at`: the one that was reached, where nothing tells."""
    if key == END:
        return len(activations.most) - 1
    if key == START:
        return at
    return activations.ready.get(~key, at) if key < 0 else activations.hooks[key]
