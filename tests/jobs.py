"""Jobs for tests: a model, some GPUs, a strategy."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.infer import infer
from zeroplan.catalog.models import model
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy, Workload


def job(name: str | int, *, gpus: int = 8, seq: int = 2048, capacity: int | None = None, **strategy: Any) -> Job:
    """`name` is a preset, or a number of parameters."""
    found = infer(name, str(name)) if isinstance(name, int) else model(name)
    nodes, per_node = (1, gpus) if gpus <= 8 else (gpus // 8, 8)
    return Job(
        model=found,
        cluster=Cluster(nodes=nodes, gpus_per_node=per_node, capacity=capacity),
        workload=Workload(seq=seq),
        strategy=Strategy(**{"stage": 0, **strategy}),
    )
