"""How far a predicted step may be off: each term by what its rates rest on."""

from __future__ import annotations

from math import sqrt

from zeroplan.clock import COMMUNICATION, COMPUTE, OFFLOAD, OPTIMIZER, Interval, StepTime, Term, weakest
from zeroplan.costs.timing.computing import ATTENTION, LOGITS, PRODUCTS
from zeroplan.costs.timing.offload import ON_CPU

KNOWN = ("measured", "published")
SPREADS: dict[tuple[str, bool], tuple[float, float]] = {
    (PRODUCTS, True): (0.90, 1.10), (PRODUCTS, False): (0.80, 1.25),
    (LOGITS, True): (0.90, 1.10), (LOGITS, False): (0.80, 1.25),
    (ATTENTION, True): (0.88, 1.12), (ATTENTION, False): (0.70, 1.40),
    (COMPUTE, True): (0.70, 1.40), (COMPUTE, False): (0.60, 1.60),
    (COMMUNICATION, True): (0.70, 1.40), (COMMUNICATION, False): (0.50, 2.00),
    (ON_CPU, True): (0.85, 1.15), (ON_CPU, False): (0.25, 4.00),
    (OFFLOAD, True): (0.80, 1.30), (OFFLOAD, False): (0.60, 2.00),
    (OPTIMIZER, True): (0.80, 1.30), (OPTIMIZER, False): (0.60, 1.60),
}  # fmt: skip
"""By term, or by group of terms, and whether its rate was measured or published: from what to what share it may come
out. Hosts differ 25-fold in how fast they update; networks reach half of what their cards have."""


def interval(step: StepTime) -> Interval:
    """Terms of one name are off together, others each for itself; the reason names the two that make most of it."""
    below: dict[str, float] = {}
    above: dict[str, float] = {}
    worst: dict[str, Term] = {}
    for entry in step.terms:
        name = entry.name.partition(",")[0] if entry.group in (COMPUTE, OFFLOAD) else entry.group
        low, high = _spread(entry)
        below[name] = below.get(name, 0.0) + (1 - low) * entry.seconds
        above[name] = above.get(name, 0.0) + (high - 1) * entry.seconds
        if name not in worst or entry.seconds > worst[name].seconds:
            worst[name] = entry
    widest = sorted(above, key=lambda name: -above[name])[:2]
    reason = "; ".join(f"{worst[name].name.partition(',')[0]}: {_founded(worst[name])}" for name in widest)
    low, high = (sqrt(sum(part * part for part in parts.values())) for parts in (below, above))
    return Interval(max(0.0, step.total - low), step.total + high, reason)


def _spread(entry: Term) -> tuple[float, float]:
    known = bool(entry.figures) and entry.figures[0].evidence in KNOWN
    return SPREADS.get((entry.name.partition(",")[0], known)) or SPREADS[entry.group, known]


def _founded(entry: Term) -> str:
    return f"rate {entry.figures[0].evidence}" if entry.figures else weakest([])
