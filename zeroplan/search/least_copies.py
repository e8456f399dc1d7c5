"""Copies of stage 3's offload that no choice of numbers changes."""

from __future__ import annotations

from zeroplan.costs.deepspeed.module_hooks import cached_per_execution
from zeroplan.costs.deepspeed.partitions import below_ratio, own_shares
from zeroplan.search.least_traffic import partitioned_parts
from zeroplan.specs.job import Job


def least_copied(job: Job, again: int) -> float:
    """Bytes that one rank copies in a step and waits for: updated parameters, and those that a pass gathers.

    `again`: elements that backward gathers.
    """
    strategy = job.strategy
    whole = strategy.offload_optimizer is not None and below_ratio(job) == 0
    if strategy.offload_param:
        elements = partitioned_parts(job).elements + again
        return strategy.micro_steps * strategy.element_bytes * elements / job.ranks
    return own_elements(job) * strategy.element_bytes if whole else 0


@cached_per_execution
def own_elements(job: Job) -> int:
    """Of the rank's partitions of trained tensors, padding left out."""
    return sum(map(own_shares(job).cut.__getitem__, job.execution.gradients))
