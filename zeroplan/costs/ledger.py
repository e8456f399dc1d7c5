"""One door to the costs of a job: the ledger under the paper's accounting or DeepSpeed's."""

from __future__ import annotations

from zeroplan.costs import paper
from zeroplan.costs.activations import activations
from zeroplan.costs.deepspeed import stage_0, stage_3, stages_1_2
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job

ACCOUNTINGS = ("deepspeed", "paper")


def ledger(job: Job, accounting: str = "deepspeed") -> Ledger:
    """Everything held and moved by one strategy."""
    alive = activations(job)
    if accounting == "paper":
        return paper.ledger(job, alive)
    if job.strategy.stage == 0:
        return Ledger("deepspeed", stage_0.gpu(job, alive), stages_1_2.host(job), traffic=traffic(job))
    if job.strategy.stage < 3:
        return Ledger("deepspeed", stages_1_2.gpu(job, alive), stages_1_2.host(job), traffic=traffic(job))
    return Ledger("deepspeed", stage_3.gpu(job, alive), stage_3.host(job), stage_3.nvme(job), traffic=traffic(job))
