"""One door to the costs of a job: the ledger under the paper's accounting or DeepSpeed's."""

from __future__ import annotations

from typing import Any

from zeroplan.costs import recomputing
from zeroplan.costs.activations import activations
from zeroplan.costs.deepspeed import adagrad, host, muon, stage_0, stage_3, stage_3_initialize, stages_1_2
from zeroplan.costs.deepspeed.nvme_swap import check_buffers
from zeroplan.costs.deepspeed.offload_copies import copies
from zeroplan.costs.deepspeed.stages_0_2_initialize import init_stage_0, init_stages_1_2
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.costs.memory import timeline
from zeroplan.ledger import Detail, Ledger, Line
from zeroplan.specs.job import Job

ACCOUNTINGS = ("deepspeed", "paper")
INITS = {0: init_stage_0, 1: init_stages_1_2, 2: init_stages_1_2, 3: stage_3_initialize.initialize}
STAGES: dict[int, Any] = {0: stage_0, 1: stages_1_2, 2: stages_1_2, 3: stage_3}


def ledger(job: Job, accounting: str = "deepspeed", *, detail: Detail = Detail.KINDS) -> Ledger:
    """Everything held and moved by one strategy; by `detail`, activations are told apart by what keeps them."""
    recomputing.check(job)
    if accounting == "paper":
        from zeroplan.costs import paper

        return paper.ledger(job)
    alive = activations(job)
    adagrad.check(job)
    muon.check(job)
    if job.strategy.stage == 3:
        check_buffers(job)
    stage = STAGES[job.strategy.stage]
    init = INITS[job.strategy.stage](job)
    gpu = timeline(job, stage.resident(job), stage.phase_memory(job), alive, init, detail=detail)
    return Ledger(
        "deepspeed", gpu, host.tier(job), host.nvme(job), traffic=traffic(job), copies=copies(job),
    )  # fmt: skip


def resident(job: Job) -> list[Line]:
    """What the GPU holds between steps."""
    lines: list[Line] = STAGES[job.strategy.stage].resident(job)
    return lines
