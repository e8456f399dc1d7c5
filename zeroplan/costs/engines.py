"""The engines that are known: one line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.costs.deepspeed.engine import DeepSpeed
from zeroplan.specs.job import Job

if TYPE_CHECKING:
    from zeroplan.costs.engine import TrainingEngine

ENGINES: dict[str, TrainingEngine] = {"deepspeed": DeepSpeed()}


def engine_of(job: Job) -> TrainingEngine:
    """The engine that runs a job."""
    return ENGINES[job.engine.name]
