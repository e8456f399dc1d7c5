"""Tokens per second and utilisation of a step.

How far a predicted step may be off: each term by what its rates rest on.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

from zeroplan.clock import (
    COMMUNICATION,
    COMPUTE,
    HFU,
    MFU,
    MFU_CAUSAL,
    OFFLOAD,
    OPTIMIZER,
    Interval,
    Speed,
    StepTime,
    Term,
    Utilisation,
    weakest,
)
from zeroplan.costs.timing.computing import (
    ATTENTION,
    BACKWARD_PRODUCTS,
    LOGITS,
    PRODUCTS,
    backward_share,
    recomputed_shares,
)
from zeroplan.costs.timing.offload import ON_CPU
from zeroplan.costs.timing.rates import multiplied_in
from zeroplan.costs.timing.step import STARTS, step_time
from zeroplan.costs.timing.work import ForwardWork, work
from zeroplan.formulas import timing
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job

KNOWN = ("measured", "published")
SPREADS: dict[tuple[str, bool], tuple[float, float]] = {
    (PRODUCTS, True): (0.90, 1.10), (PRODUCTS, False): (0.80, 1.25),
    (LOGITS, True): (0.90, 1.10), (LOGITS, False): (0.80, 1.25),
    (ATTENTION, True): (0.88, 1.12), (ATTENTION, False): (0.70, 1.40),
    (COMPUTE, True): (0.70, 1.40), (COMPUTE, False): (0.60, 1.60),
    (COMMUNICATION, True): (0.70, 1.40), (COMMUNICATION, False): (0.50, 2.00),
    (ON_CPU, True): (0.85, 1.15), (ON_CPU, False): (0.25, 4.00),
    (OFFLOAD, True): (0.80, 1.30), (OFFLOAD, False): (0.60, 2.00),
    (OPTIMIZER, True): (0.80, 1.30), (OPTIMIZER, False): (0.60, 1.60), (STARTS, True): (0.40, 1.50),
}  # fmt: skip
"""By term, or by group of terms, and whether its rate was measured or published: from what to what share it may come
out. Hosts differ 25-fold in how fast they update; networks reach half of what their cards have; the one host
that starts of updates were measured on is slow."""
OTHER_GROUP = {True: (0.80, 1.30), False: (0.60, 2.00)}
"""For a group that has none of its own."""


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
    by_name = SPREADS.get((entry.name.partition(",")[0], known))
    return by_name or SPREADS.get((entry.group, known), OTHER_GROUP[known])


def _founded(entry: Term) -> str:
    return f"rate {entry.figures[0].evidence}" if entry.figures else weakest([])


MODEL = "model FLOPs (PaLM): 6·Ψ·T + 12·L·q·s·T, attention over all pairs of tokens, nothing counted twice"
MODEL_CAUSAL = "model FLOPs, causal: 6·Ψ·T + 6·L·q·s·T, attention over a token and those before it"
RECORDED = tuple(
    f"model FLOPs of its recorded operators, which see other tokens than --seq too: {pairs}, nothing counted twice"
    for pairs in ("all attention over all pairs of tokens", "causal attention over a token and those before it alone")
)
FROZEN = "; of backward's two thirds what runs of the layers, as weights are frozen"
HARDWARE = "hardware FLOPs: products and causal attention as they run, with what checkpointing runs again"


def speed(job: Job, ledger: Ledger) -> Speed:
    """The speed of one optimizer step."""
    return speed_of(job, step_time(job, ledger))


def speed_of(job: Job, step: StepTime) -> Speed:
    """The speed of a step that was timed already."""
    tokens = job.tokens * job.strategy.micro_steps * job.ranks
    return Speed(step, interval(step), tokens, job.ranks, utilisation(job, step))


def utilisation(job: Job, step: StepTime) -> tuple[Utilisation, ...]:
    """FLOPs of a micro-step over what the card could do in its seconds; nothing for a card without a known peak."""
    peak = _peak(job)
    if not peak:
        return ()
    available = peak * step.total / job.strategy.micro_steps
    frozen, recomputed, result = FROZEN * bool(job.model.frozen), recomputed_shares(job), work(job)
    as_run = _by_operators(job, result)
    once, definitions = (as_run, RECORDED) if _has_other_tokens(job) else (_by_parameters(job), (MODEL, MODEL_CAUSAL))
    recomputing = recomputed.products * result.layers.flops + recomputed.attention * result.attention
    return (
        Utilisation(MFU, definitions[0] + frozen, (once.linear + 2 * once.causal) / available),
        Utilisation(MFU_CAUSAL, definitions[1] + frozen, (once.linear + once.causal) / available),
        Utilisation(HFU, HARDWARE, (as_run.linear + as_run.causal + recomputing) / available),
    )


class _Flops(NamedTuple):
    """FLOPs of a micro-step, forward and backward, nothing counted twice."""

    linear: float
    """Those of products with weights, and of attention that looks both ways."""
    causal: float
    """Those of attention to a token and those before it."""


def _has_other_tokens(job: Job) -> bool:
    """Layers see other tokens than those of `--seq`: patches of images, frames of sound, a target."""
    images, is_heard = job.model.images, any(not each.dtype.startswith("int") for each in job.model.inputs)
    return job.model.is_recorded and bool((images and images.number) or is_heard or job.model.target is not None)


def _by_parameters(job: Job) -> _Flops:
    shape, tokens, backward = job.model.shape, job.tokens, backward_share(job)
    linear = timing.parameter_flops(active_parameters(job), tokens) * (1 + backward.products) / (1 + BACKWARD_PRODUCTS)
    causal = timing.attention_flops(shape.queries, shape.layers, job.workload.seq, tokens)
    return _Flops(linear, causal * (1 + BACKWARD_PRODUCTS * backward.layers) / (1 + BACKWARD_PRODUCTS))


def _by_operators(job: Job, result: ForwardWork) -> _Flops:
    backward = backward_share(job)
    linear = (1 + backward.products) * result.layers.flops + (1 + backward.head) * result.head.flops
    return _Flops(linear, (1 + BACKWARD_PRODUCTS * backward.layers) * result.attention)


def _peak(job: Job) -> float:
    gpu, precision = job.cluster.gpu, multiplied_in(job)
    if gpu is None:
        return 0.0
    known = gpu.peak.get(precision) or gpu.peak.get("bf16") or gpu.peak.get("fp16")
    return known.value if known else 0.0


def active_parameters(job: Job) -> int:
    """Parameters that one token meets: all but the experts it is not routed to."""
    shape = job.model.shape
    if not shape.experts:
        return job.model.products
    routed = sum(tensor.elements for tensor in job.model.tensors if ".experts." in tensor.name)
    return job.model.products - routed + routed * shape.experts_per_token // shape.experts
