"""A job: one model under one strategy on one cluster."""

from __future__ import annotations

from typing import Any, NamedTuple

from zeroplan.specs.cluster import Cluster
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Strategy, Workload


class Job(NamedTuple):
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

    def at(self, **changes: Any) -> Job:
        """The same job under a changed strategy."""
        return self._replace(strategy=self.strategy._replace(**changes))
