"""One door to the costs of a job: the ledger under the paper's accounting or DeepSpeed's."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from zeroplan.costs import recomputing
from zeroplan.costs.activations import activations
from zeroplan.costs.deepspeed import adagrad, host, muon, stage_0, stage_3, stage_3_initialize, stages_1_2
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.nvme_swap import check_buffers
from zeroplan.costs.deepspeed.offload_copies import copies
from zeroplan.costs.deepspeed.phase_memory import NOTHING, timeline
from zeroplan.costs.deepspeed.stages_0_2_initialize import init_stage_0, init_stages_1_2
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.costs.passes import least_activations
from zeroplan.ledger import Detail, Ledger, total
from zeroplan.specs.job import Job

ACCOUNTINGS = ("deepspeed", "paper")
INITS = {0: init_stage_0, 1: init_stages_1_2, 2: init_stages_1_2, 3: stage_3_initialize.initialize}
STAGES = {0: stage_0, 1: stages_1_2, 2: stages_1_2, 3: stage_3}


def ledger(job: Job, accounting: str = "deepspeed", *, detail: Detail = Detail.KINDS) -> Ledger:
    """Everything held and moved by one strategy; by `detail`, activations are told apart by what keeps them."""
    with uncollected():
        return _counted(job, accounting, detail)


@contextmanager
def uncollected() -> Iterator[None]:
    """A replay makes tens of thousands of small tuples, none of them garbage: looking for some takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def resident_at_least(job: Job) -> int:
    """Bytes that the GPU holds between steps: no peak of forward or backward is below them."""
    return total(STAGES[job.strategy.stage].resident(job))


def init_at_least(job: Job) -> int:
    """Bytes at most inside `initialize`."""
    return total(INITS[job.strategy.stage](job))


def step_at_least(job: Job) -> int:
    """Bytes at most while the optimizer runs, at stage 3 without gradients that are still on the GPU."""
    if job.strategy.stage < 3:
        return 0
    resident = [entry for entry in stage_3.resident(job) if entry.name not in stage_3.AWAY_IN_THE_STEP]
    return total([*resident, *stage_3.step(job)])


def gathering_at_least(job: Job) -> int:
    """Bytes at most in forward and backward at stage 3, gradients that wait left out."""
    return resident_at_least(job) + (stage_3.gathering_at_least(job) if job.strategy.stage == 3 else 0)


def gpu_at_least(job: Job) -> int:
    """Bytes that the GPU's peak cannot be below: what is held and the activations, without any replay."""
    return gpu_with(job, least_activations(job))


def gpu_with(job: Job, found: tuple[int, int] | None) -> int:
    """The same with so many bytes of activations in forward and in backward; None: by closed forms.

    Whole gradients, at stages 0 and 1, are there while the next micro-step runs, up to the backward that frees them.
    """
    gradients, micro_steps = whole_gradients(job), job.strategy.micro_steps
    if found is None:
        return total(timeline(job, STAGES[job.strategy.stage].resident(job), NOTHING, activations(job)).peak.lines)
    forward = found[0] + (gradients if micro_steps > 1 else 0)
    backward = found[1] + (gradients if micro_steps > 2 else 0)
    return resident_at_least(job) + max(forward, backward)


def whole_gradients(job: Job) -> int:
    """Bytes of all gradients where each rank keeps them whole on the GPU until the last micro-step."""
    strategy = job.strategy
    if strategy.stage > 1 or strategy.offload_optimizer or strategy.runs_bf16_optimizer:
        return 0
    return strategy.element_bytes * sum(map(tensor_sizes(job).__getitem__, job.execution.gradients))


def _counted(job: Job, accounting: str, detail: Detail) -> Ledger:
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
