"""One optimizer step in seconds: micro-steps with their traffic beside them, then the update and what follows it."""

from __future__ import annotations

from zeroplan.clock import OPTIMIZER, StepTime, Term, term
from zeroplan.costs.deepspeed.held import DTYPE_BYTES, state_bytes, state_dtype
from zeroplan.costs.timing.beside import host_terms, updated_per_node
from zeroplan.costs.timing.computing import computing
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.traffic import communication
from zeroplan.formulas import roofline
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job
from zeroplan.specs.software import LIGER, TRANSFORMERS, Software


def step_time(job: Job, ledger: Ledger, software: Software | None = None) -> StepTime:
    """One optimizer step of this job, whose collectives and copies are the ledger's; `software`: as the job says."""
    software = software or software_of(job)
    micro_steps, found = job.strategy.micro_steps, computing(job, software)
    work = (
        entry._replace(seconds=micro_steps * entry.seconds, times=micro_steps * entry.times)
        for entry in (*found.forward.terms, *found.backward.terms)
    )
    computes = micro_steps * (found.forward.seconds + found.backward.seconds)
    beside = host_terms(job, ledger, computes)
    return StepTime((*work, *communication(job, ledger, found, software), *beside, *update(job)))


def software_of(job: Job) -> Software:
    """Which of the model's operators run as kernels of their own."""
    return LIGER if job.strategy.kernels == "liger" else TRANSFORMERS


def update(job: Job) -> list[Term]:
    """The optimizer on the GPU: master weights and states read and written, the gradient widened, weights written."""
    strategy = job.strategy
    here = job.model.parameters / strategy.shards(1, job.ranks)
    if strategy.offload_optimizer:
        here -= updated_per_node(job) / min(job.cluster.gpus_per_node, job.ranks)
    if here < 1:
        return []
    states = 2 * (DTYPE_BYTES[strategy.master] + state_bytes(job, state_dtype(job)))
    widened = 2 * DTYPE_BYTES["float32"]
    at = rates(job.cluster.gpu, strategy.precision, strategy.attention)
    return [
        term(
            OPTIMIZER, "optimizer on the GPU", roofline.streamed, at.memory,
            touched=here * (states + widened + strategy.element_bytes), bandwidth=at.memory.value,
        )
    ]  # fmt: skip
