"""One door to the costs of a job: the ledger under the paper's accounting or the engine's."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.costs import recomputing
from zeroplan.costs.activations import activations
from zeroplan.costs.engines import engine_of
from zeroplan.costs.memory import moments
from zeroplan.ledger import Detail, Ledger, Line, Moment, Tier, Tiers, total
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
    """Everything held by one strategy under the engine's accounting; `detail` as `ledger` has it."""
    stays, step = _on_gpu(job, detail)
    return _with_host(job, Tier(tuple(stays), tuple(step)))


def tiers_within(job: Job, limit: int | None) -> Tiers | None:
    """Everything held, as `tiers`, with one line for all activations; None as soon as a moment of the GPU has more than
    `limit` bytes (None: any number).
    """
    stays, step = _on_gpu(job, Detail.WHOLE)
    looked_at: list[Moment] = []
    for moment in step:
        if limit is not None and total(moment.lines) > limit:
            return None
        looked_at.append(moment)
    return _with_host(job, Tier(tuple(stays), tuple(looked_at)))


def _on_gpu(job: Job, detail: Detail) -> tuple[list[Line], Iterator[Moment]]:
    """What stays between steps, and the moments of a step, which are worked out as they are read."""
    recomputing.check(job)
    alive, engine = activations(job), engine_of(job)
    engine.check(job)
    stays = engine.resident(job)
    return stays, moments(job, stays, engine.phase_memory(job), alive, engine.initialize(job), detail=detail)


def _with_host(job: Job, gpu: Tier) -> Tiers:
    engine = engine_of(job)
    return Tiers(gpu, engine.host(job), engine.nvme(job))


def with_moved(job: Job, held: Tiers) -> Ledger:
    """The ledger of what is held, with what the engine moves."""
    engine = engine_of(job)
    return Ledger(job.engine.name, *held, engine.traffic(job), engine.copies(job))


def resident(job: Job) -> list[Line]:
    """What the GPU holds between steps."""
    return engine_of(job).resident(job)
