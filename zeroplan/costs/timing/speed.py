"""Tokens per second and utilisation of a step."""

from __future__ import annotations

from zeroplan.clock import HFU, MFU, MFU_CAUSAL, Speed, StepTime, Utilisation
from zeroplan.costs.timing.computing import BACKWARD_PRODUCTS, recomputed_shares
from zeroplan.costs.timing.rates import multiplied_in
from zeroplan.costs.timing.spread import interval
from zeroplan.costs.timing.step import step_time
from zeroplan.costs.timing.work import work
from zeroplan.formulas import compute
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job

MODEL = "model FLOPs (PaLM): 6·Ψ·T + 12·L·q·s·T, attention over all pairs of tokens, nothing counted twice"
MODEL_CAUSAL = "model FLOPs, causal: 6·Ψ·T + 6·L·q·s·T, attention over a token and those before it"
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
    shape, tokens = job.model.shape, job.tokens
    linear = compute.parameter_flops(active_parameters(job), tokens)
    causal = compute.attention_flops(shape.queries, shape.layers, job.workload.seq, tokens)
    return (
        Utilisation(MFU, MODEL, (linear + 2 * causal) / available),
        Utilisation(MFU_CAUSAL, MODEL_CAUSAL, (linear + causal) / available),
        Utilisation(HFU, HARDWARE, _as_run(job) / available),
    )


def _as_run(job: Job) -> float:
    """FLOP of forward, of backward's two products for each, and of what runs again in layers, not in their kernels."""
    result, recomputed = work(job), recomputed_shares(job)
    passes = 1 + BACKWARD_PRODUCTS
    return (
        passes * (result.layers.flops + result.head.flops + result.attention)
        + recomputed.products * result.layers.flops + recomputed.attention * result.attention
    )  # fmt: skip


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
        return job.model.parameters
    routed = sum(tensor.elements for tensor in job.model.tensors if ".experts." in tensor.name)
    return job.model.parameters - routed + routed * shape.experts_per_token // shape.experts
