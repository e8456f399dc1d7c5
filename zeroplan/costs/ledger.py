"""One door to the costs of a job: the ledger under the paper's accounting or the engine's."""

from __future__ import annotations

from zeroplan.costs import recomputing
from zeroplan.costs.activations import activations
from zeroplan.costs.engines import engine_of
from zeroplan.costs.memory import timeline
from zeroplan.ledger import Detail, Ledger, Line, Tiers
from zeroplan.specs.job import Job

ACCOUNTINGS = ("deepspeed", "paper")


def ledger(job: Job, accounting: str = "deepspeed", *, detail: Detail = Detail.KINDS) -> Ledger:
    """Everything held and moved by one strategy; by `detail`, activations are told apart by what keeps them."""
    if accounting == "paper":
        from zeroplan.costs import paper

        recomputing.check(job)
        return paper.ledger(job)
    return with_moved(job, tiers(job, detail=detail))


def tiers(job: Job, *, detail: Detail) -> Tiers:
    """Everything held by one strategy under DeepSpeed's accounting; `detail` as `ledger` has it."""
    recomputing.check(job)
    alive, engine = activations(job), engine_of(job)
    engine.check(job)
    gpu = timeline(
        job, engine.resident(job), engine.phase_memory(job), alive, engine.initialize(job), detail=detail
    )
    return Tiers(gpu, engine.host(job), engine.nvme(job))


def with_moved(job: Job, held: Tiers) -> Ledger:
    """The ledger of what is held, with what the engine moves."""
    engine = engine_of(job)
    return Ledger(job.engine.name, *held, engine.traffic(job), engine.copies(job))


def resident(job: Job) -> list[Line]:
    """What the GPU holds between steps."""
    return engine_of(job).resident(job)
