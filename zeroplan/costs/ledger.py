"""One door to the costs of a job: the ledger under the paper's accounting or the engine's."""

from __future__ import annotations

from zeroplan.costs import recomputing
from zeroplan.costs.activations import activations
from zeroplan.costs.engines import engine_of
from zeroplan.costs.memory import timeline
from zeroplan.ledger import Detail, Ledger, Line
from zeroplan.specs.job import Job

ACCOUNTINGS = ("deepspeed", "paper")


def ledger(job: Job, accounting: str = "deepspeed", *, detail: Detail = Detail.KINDS) -> Ledger:
    """Everything held and moved by one strategy; by `detail`, activations are told apart by what keeps them."""
    recomputing.check(job)
    if accounting == "paper":
        from zeroplan.costs import paper

        return paper.ledger(job)
    alive, engine = activations(job), engine_of(job)
    engine.check(job)
    gpu = timeline(
        job, engine.resident(job), engine.phase_memory(job), alive, engine.initialize(job), detail=detail
    )
    return Ledger(
        job.engine.name, gpu, engine.host(job), engine.nvme(job), engine.traffic(job), engine.copies(job)
    )  # fmt: skip


def resident(job: Job) -> list[Line]:
    """What the GPU holds between steps."""
    return engine_of(job).resident(job)
