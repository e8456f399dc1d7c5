"""Backward passes of stage 3, run: their largest moments, and what they reduce."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from zeroplan.costs.deepspeed.events import Flush, MicroStep
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.once import once, whole
from zeroplan.costs.deepspeed.partitioning import Partitioning
from zeroplan.costs.deepspeed.quantizing import Part
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


class Reductions(NamedTuple):
    """Of a step's last backward."""

    sent: tuple[Part, ...]
    flushes: tuple[Flush, ...]
    offloaded: dict[int, int]
    """Elements of each reduced partition that goes to the host."""


def _decides(strategy: Strategy) -> Hashable:
    """Gradients come in one order, however far parameters are gathered ahead."""
    return whole(strategy._replace(prefetch_bucket_size=0))


@once(_decides)
def reductions(job: Job) -> Reductions:
    found = backward_of(job)
    return Reductions(tuple(found.sent), tuple(found.flushes), found.offloaded)


@once(whole)
def backward_of(job: Job) -> Partitioning:
    """The third step's backward passes, already run: their peak, and what the last one sent."""
    return partitioned(job, *micro_steps(job).largest)


def partitioned(job: Job, *run: MicroStep, ends: bool = True) -> Partitioning:
    """One backward after the other; `ends`: the last is the optimizer step's last."""
    found = Partitioning(job)
    for number, micro_step in enumerate(run, 1):
        found.boundary = ends and number == len(run)
        found.run(micro_step)
    return found
