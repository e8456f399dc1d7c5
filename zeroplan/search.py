"""The space of strategies of a request, each counted and timed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from zeroplan.clock import StepTime
from zeroplan.costs.deepspeed import muon
from zeroplan.costs.deepspeed.room import with_room
from zeroplan.costs.ledger import gpu_at_least, ledger
from zeroplan.costs.timing import step_time
from zeroplan.fit import Fit, fit, gpu_fit
from zeroplan.ledger import Detail, Ledger
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OFFLOADABLE
from zeroplan.specs.strategy import STAGES, Offload, Strategy

SMALL_BUCKET = 50_000_000
"""Elements. Under this a bucket's latency shows; hidden² (the Trainer's "auto") is kept where it is larger."""
ENOUGH_BUCKET = 16_000_000
LARGEST_BUCKET = 500_000_000


class Candidate(NamedTuple):
    """One strategy, what it needs, whether that is there, and how long a step takes."""

    job: Job
    ledger: Ledger
    fit: Fit
    time: StepTime

    @property
    def strategy(self) -> Strategy:
        return self.job.strategy

    @property
    def throughput(self) -> float:
        """Sequences per second over all GPUs."""
        return self.strategy.micro_batch * self.strategy.micro_steps * self.job.ranks / self.time.total


def evaluate(job: Job, reserve: float) -> Candidate:
    """Count and time one job, keeping `reserve` of each card free."""
    job = with_room(job)
    counted = ledger(job, detail=Detail.WHOLE)
    return Candidate(job, counted, fit(job, counted, reserve=reserve), step_time(job, counted))


def too_large(job: Job, reserve: float) -> bool:
    """Whether what a replay could only add to is already more than the card has."""
    return gpu_fit(job, gpu_at_least(job), reserve).fits is False


def choices(job: Job, settled: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of stage, offload and checkpointing that the settled fields leave open."""
    stages = [settled["stage"]] if "stage" in settled else list(STAGES)
    checkpointing = [settled["checkpointing"]] if "checkpointing" in settled else ["none", "full"]
    optimizers = _offloads(job, settled, "offload_optimizer")
    parameters = _offloads(job, settled, "offload_param")
    for stage, recompute, optimizer, params in product(stages, checkpointing, optimizers, parameters):
        if _runs(job, stage, optimizer, params, settled):
            yield {
                "stage": stage,
                "checkpointing": recompute,
                "offload_optimizer": optimizer,
                "offload_param": params,
                **buckets(job, stage, settled),
            }


def _offloads(job: Job, settled: dict[str, Any], name: str) -> list[Offload | None]:
    if name in settled:
        return [settled[name]]
    devices = ["cpu", *(["nvme"] if job.cluster.nvme else [])]
    return [None, *(Offload(device=device) for device in devices)]


def _runs(job: Job, stage: int, optimizer: Offload | None, params: Offload | None, settled: dict[str, Any]) -> bool:
    """Whether DeepSpeed does anything with that combination, and whether it is worth considering unasked."""
    if (params and stage < 3) or ("stage" not in settled and muon.refusal(job.at(stage=stage))):
        return False
    if optimizer is None:
        return params is None or settled.get("offload_param") is not None
    if job.strategy.optimizer not in OFFLOADABLE and not settled.get("offload_optimizer"):
        return False
    return stage == 3 or (stage > 0 and optimizer.device == "cpu")


def buckets(job: Job, stage: int, settled: dict[str, Any]) -> dict[str, Any]:
    """Bucket sizes in elements: hidden² where that is enough to hide latency, else 5e7; never above 5e8.

    With buckets that small a second one costs little, so reduction overlaps backward at every stage that can.
    """
    if stage == 0:
        return {}
    hidden = job.model.shape.hidden
    size = min(hidden * hidden, LARGEST_BUCKET) if hidden * hidden >= ENOUGH_BUCKET else SMALL_BUCKET
    chosen: dict[str, Any] = {"reduce_bucket_size": size, "overlap_comm": True}
    if stage == 3:
        chosen["prefetch_bucket_size"] = int(0.9 * hidden * hidden) if size == hidden * hidden else SMALL_BUCKET
        chosen["param_persistence_threshold"] = 10 * hidden
        chosen["reduce_scatter"] = job.at(stage=stage).strategy.scatters
    else:
        chosen["allgather_bucket_size"] = LARGEST_BUCKET
    return {name: settled.get(name, value) for name, value in chosen.items()}


def micro_batches(per_gpu: int, settled: dict[str, Any]) -> list[int]:
    """Micro-batches that divide the sequences a GPU sees per step, largest first."""
    if "micro_batch" in settled:
        return [settled["micro_batch"]]
    accum = settled.get("grad_accum")
    if accum:
        return [per_gpu // accum]
    return [size for size in range(min(per_gpu, 1024), 0, -1) if per_gpu % size == 0]


def best_micro_batch(job: Job, sizes: list[int], per_gpu: int, reserve: float) -> tuple[Candidate, Candidate | None]:
    """The largest micro-batch that fits (bytes only grow with it), and the next larger one that does not.

    When none fits, the smallest stands first.
    """
    evaluated: dict[int, Candidate] = {}

    def sized(index: int) -> Job:
        return job.at(micro_batch=sizes[index], grad_accum=per_gpu // sizes[index])

    def at(index: int) -> Candidate:
        if index not in evaluated:
            evaluated[index] = evaluate(sized(index), reserve)
        return evaluated[index]

    low, high = 0, len(sizes) - 1
    while low < high:  # the first of the descending sizes that fits
        middle = (low + high) // 2
        if too_large(sized(middle), reserve) or at(middle).fit.fits is False:
            low = middle + 1
        else:
            high = middle
    return at(low), at(low - 1) if low > 0 and at(low).fit.fits is not False else None
