"""A whole training run under one plan: steps, seconds, GPU-hours, cost, and whether it ends in time."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.clock import Speed
from zeroplan.costs.timing.computing import BACKWARD_PRODUCTS
from zeroplan.costs.timing.rates import rates
from zeroplan.costs.timing.speed import speed_of
from zeroplan.costs.timing.work import work
from zeroplan.search import Candidate
from zeroplan.specs.job import Job
from zeroplan.specs.training import TrainingRequest

HOUR = 3600
MILLION = 10**6


class TrainingRun(NamedTuple):
    """Steps one after the other; nothing else (no evaluation, no checkpoint written, no restart) is in its seconds."""

    wanted: TrainingRequest
    speed: Speed

    @property
    def steps(self) -> int:
        """Whole ones, that the tokens take; 0 where none were asked for."""
        return ceil_div(self.wanted.tokens or 0, self.speed.tokens)

    @property
    def seconds(self) -> float:
        return self.steps * self.speed.step.total

    @property
    def low(self) -> float:
        """Seconds at the lower end of a step's interval; `high`: at the upper one."""
        return self.steps * self.speed.interval.low

    @property
    def high(self) -> float:
        return self.steps * self.speed.interval.high

    @property
    def gpu_hours(self) -> float:
        return self.seconds * self.speed.gpus / HOUR

    @property
    def late(self) -> float | None:
        """Seconds after the deadline; less than zero: to spare; None without a deadline."""
        return None if self.wanted.deadline is None else self.seconds - self.wanted.deadline

    @property
    def in_time(self) -> bool:
        return self.late is None or self.late <= 0

    @property
    def cost(self) -> float | None:
        """The cost of all its GPU-hours; None without a price or tokens."""
        return self.gpu_hours * self.wanted.price.amount if self.wanted.price and self.wanted.tokens else None

    @property
    def cost_per_million(self) -> float | None:
        """The cost of a million tokens; None without a price."""
        price = self.wanted.price
        return price.amount / HOUR * MILLION / self.speed.tokens_per_gpu if price else None


def run_of(candidate: Candidate, wanted: TrainingRequest) -> TrainingRun:
    """The training run under a plan whose card is known."""
    return TrainingRun(wanted, speed_of(candidate.job, candidate.time))


def least_seconds(job: Job, tokens: int) -> float:
    """That so many tokens take on these GPUs under any plan: their matrix products alone, at the card's own rate."""
    forward = work(job)
    each = (1 + BACKWARD_PRODUCTS) * (forward.layers.flops + forward.head.flops) / job.tokens
    return tokens * each / (rates(job).products.value * job.ranks)
