"""One optimizer step in seconds: micro-steps with their traffic beside them, then the update and what follows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from zeroplan.clock import OPTIMIZER, StepTime, Term, term
from zeroplan.costs.engine import OptimizerUpdate
from zeroplan.costs.engines import engine_of
from zeroplan.costs.timing.computing import Computing, computing
from zeroplan.costs.timing.hooks import waited
from zeroplan.costs.timing.offload import host_terms, updating
from zeroplan.costs.timing.rates import products_in, rates
from zeroplan.costs.timing.traffic import Communication, communication
from zeroplan.formulas import timing
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job
from zeroplan.specs.software import LIGER, LIGER_LOSS, TRANSFORMERS, Software

STARTS = "waiting for the update to start"


class StepParts(NamedTuple):
    """What the terms of a step are made of."""

    job: Job
    ledger: Ledger
    passes: Computing
    """Forward and backward of one micro-step, with what they wait for DeepSpeed's hooks."""
    traffic: Communication
    """Seconds of a step that collectives add."""
    update: OptimizerUpdate
    software: Software


def step_time(job: Job, ledger: Ledger, software: Software | None = None) -> StepTime:
    """One optimizer step of this job, whose collectives and copies are the ledger's; `software`: as the job says."""
    software = software or software_of(job)
    alone = computing(job, software)
    traffic = communication(job, ledger, alone, software)
    exposed = (sum(entry.seconds for entry in concurrent) for concurrent in (traffic.forward, traffic.backward))
    passes = waited(job, software, alone, *exposed)
    parts = StepParts(job, ledger, passes, traffic, engine_of(job).update(job), software)
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
    return host_terms(parts.job, parts.ledger, parts.passes, parts.update.on_host)


def newton_schulz(parts: StepParts) -> Iterator[Term]:
    """Muon's products, on the rank that has most of them; nothing under another optimizer."""
    job = parts.job
    if products := parts.update.products:
        rate, memory = products_in(job, PRECISIONS[products.dtype]), rates(job).memory
        yield term(
            OPTIMIZER, "Newton-Schulz products", timing.products, rate, memory, flops=products.flops,
            rate=rate.value, touched=products.touched, bandwidth=memory.value,
        )  # fmt: skip


PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}


def update(parts: StepParts) -> Iterator[Term]:
    """On the GPU: the norm of gradients and their clipping, then the optimizer; and how long the update, there or on
    CPUs, waits for being started tensor by tensor, beyond its work.
    """
    job, done, memory, visit = parts.job, parts.update, rates(parts.job).memory, parts.software.visit
    work = updating(job, done.on_host)
    for name, each in (("gradient norm and clipping", done.norm), ("optimizer on the GPU", done.moved)):
        if each and done.on_gpu >= 1:
            entry = term(
                OPTIMIZER, name, timing.streamed, memory, touched=done.on_gpu * each, bandwidth=memory.value
            )
            work.append(entry)
            yield entry
    if visit is None:
        return
    whole = term(OPTIMIZER, STARTS, timing.visits, visit, visited=done.tensors, visit=visit.value)
    waiting = whole.seconds - sum(entry.seconds for entry in work)
    if waiting > 0:
        yield whole._replace(seconds=waiting, times=waiting / whole.seconds)


TERMS: tuple[Callable[[StepParts], Iterable[Term]], ...] = (passes, collectives, offload, newton_schulz, update)
"""All that a step's seconds consist of, in order: a term that stands here is in the search, on the screens, in --json
and in the interval, which takes its spread from its group."""


def software_of(job: Job) -> Software:
    """Which of the model's operators run as kernels of their own."""
    return {"liger": LIGER, "liger-loss": LIGER_LOSS}.get(job.strategy.kernels, TRANSFORMERS)
