"""One optimizer step in seconds: micro-steps with their traffic beside them, then the update and what follows it."""

from __future__ import annotations

from zeroplan.clock import OPTIMIZER, StepTime, Term, term
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.resident import DTYPE_BYTES, state_bytes, state_dtype
from zeroplan.costs.timing.computing import computing
from zeroplan.costs.timing.hooks import waited
from zeroplan.costs.timing.offload import host_terms, updated_by_cpus
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.traffic import communication
from zeroplan.formulas import roofline
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job
from zeroplan.specs.software import LIGER, LIGER_LOSS, TRANSFORMERS, Software


def step_time(job: Job, ledger: Ledger, software: Software | None = None) -> StepTime:
    """One optimizer step of this job, whose collectives and copies are the ledger's; `software`: as the job says."""
    software = software or software_of(job)
    alone = computing(job, software)
    forward, backward, after = communication(job, ledger, alone, software)
    exposed_communication = (sum(entry.seconds for entry in concurrent) for concurrent in (forward, backward))
    result, times = waited(job, software, alone, *exposed_communication), job.strategy.micro_steps
    work = (
        entry._replace(seconds=times * entry.seconds, times=times * entry.times)
        for entry in (*result.forward.terms, *result.backward.terms)
    )
    traffic = (*forward, *backward, *after)
    return StepTime((*work, *traffic, *host_terms(job, ledger, result), *_of_muon(job), *update(job)))


def _of_muon(job: Job) -> list[Term]:
    """Nothing under another optimizer."""
    if not matrices(job):
        return []
    from zeroplan.costs.timing.muon import muon_terms

    return muon_terms(job)


def software_of(job: Job) -> Software:
    """Which of the model's operators run as kernels of their own."""
    return {"liger": LIGER, "liger-loss": LIGER_LOSS}.get(job.strategy.kernels, TRANSFORMERS)


def update(job: Job) -> list[Term]:
    """On the GPU: the norm of gradients and their clipping, then the optimizer."""
    strategy = job.strategy
    here = job.model.parameters / strategy.shards(1, job.ranks)
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
