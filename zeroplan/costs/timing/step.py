"""One optimizer step in seconds: micro-steps with their traffic beside them, then the update and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from zeroplan.clock import OPTIMIZER, StepTime, Term, term
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.resident import state_bytes, state_dtype
from zeroplan.costs.timing.computing import Computing, computing
from zeroplan.costs.timing.hooks import waited
from zeroplan.costs.timing.offload import host_terms, updated_by_cpus
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.traffic import Communication, communication
from zeroplan.formulas import roofline
from zeroplan.ledger import DTYPE_BYTES, Ledger
from zeroplan.specs.job import Job
from zeroplan.specs.software import LIGER, LIGER_LOSS, TRANSFORMERS, Software


class StepParts(NamedTuple):
    """What the terms of a step are made of."""

    job: Job
    ledger: Ledger
    passes: Computing
    """Forward and backward of one micro-step, with what they wait for DeepSpeed's hooks."""
    traffic: Communication
    """Seconds of a step that collectives add."""


def step_time(job: Job, ledger: Ledger, software: Software | None = None) -> StepTime:
    """One optimizer step of this job, whose collectives and copies are the ledger's; `software`: as the job says."""
    software = software or software_of(job)
    alone = computing(job, software)
    traffic = communication(job, ledger, alone, software)
    exposed = (sum(entry.seconds for entry in concurrent) for concurrent in (traffic.forward, traffic.backward))
    parts = StepParts(job, ledger, waited(job, software, alone, *exposed), traffic)
    return StepTime(tuple(chain.from_iterable(terms(parts) for terms in TERMS)))


def passes(parts: StepParts) -> Iterator[Term]:
    """Forward and backward of all micro-steps."""
    times = parts.job.strategy.micro_steps
    for entry in (*parts.passes.forward.terms, *parts.passes.backward.terms):
        yield entry._replace(seconds=times * entry.seconds, times=times * entry.times)


def collectives(parts: StepParts) -> Iterable[Term]:
    """What shows of them beside the passes, and what comes after."""
    return chain.from_iterable(parts.traffic)


def offload(parts: StepParts) -> Iterable[Term]:
    """PCIe, the disks, and the CPUs' optimizer."""
    return host_terms(parts.job, parts.ledger, parts.passes)


def newton_schulz(parts: StepParts) -> Iterable[Term]:
    """Muon's products; nothing under another optimizer."""
    if not matrices(parts.job):
        return ()
    from zeroplan.costs.timing.muon import muon_terms

    return muon_terms(parts.job)


def update(parts: StepParts) -> list[Term]:
    """On the GPU: the norm of gradients and their clipping, then the optimizer."""
    job, strategy = parts.job, parts.job.strategy
    here = job.model.trainable_parameters / strategy.shards(1, job.ranks)
    if strategy.offload_optimizer:
        here -= updated_by_cpus(job)
    if here < 1:
        return []
    single, w = DTYPE_BYTES["float32"], strategy.element_bytes
    states = 2 * (DTYPE_BYTES[strategy.master] + state_bytes(job, state_dtype(job)))
    narrow = 2 * single + w if w < single else single  # the gradient widened, the weights written; or the gradient
    passes = [("optimizer on the GPU", states + narrow)]
    if strategy.compute_grad_norm or strategy.gradient_clipping:
        clipped = 2 * single if strategy.gradient_clipping else 0
        passes.insert(0, ("gradient norm and clipping", w + clipped))
    memory = rates(job).memory
    return [
        term(OPTIMIZER, name, roofline.streamed, memory, touched=here * each, bandwidth=memory.value)
        for name, each in passes
    ]


TERMS: tuple[Callable[[StepParts], Iterable[Term]], ...] = (passes, collectives, offload, newton_schulz, update)
"""All that a step's seconds consist of, in order: a term that stands here is in the search, on the screens, in --json
and in the interval, which takes its spread from its group."""


def software_of(job: Job) -> Software:
    """Which of the model's operators run as kernels of their own."""
    return {"liger": LIGER, "liger-loss": LIGER_LOSS}.get(job.strategy.kernels, TRANSFORMERS)
