"""The engines that are known: one line for each."""

from __future__ import annotations

from zeroplan.costs.deepspeed.engine import DeepSpeed
from zeroplan.costs.engine import Engine
from zeroplan.specs.job import Job

ENGINES: dict[str, Engine] = {"deepspeed": DeepSpeed()}


def engine_of(job: Job) -> Engine:
    """The engine that runs a job."""
    return ENGINES[job.engine.name]
