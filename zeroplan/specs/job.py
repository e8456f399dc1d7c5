"""A job: one model under one strategy on one cluster."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zeroplan.specs.cluster import Cluster
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Strategy, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy

    @property
    def ranks(self) -> int:
        """Data-parallel ranks: every GPU is one."""
        return self.cluster.gpus

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one GPU."""
        return self.strategy.micro_batch * self.workload.seq

    def at(self, **changes: object) -> Job:
        """The same job under a changed strategy."""
        return replace(self, strategy=replace(self.strategy, **changes))  # type: ignore[arg-type]
