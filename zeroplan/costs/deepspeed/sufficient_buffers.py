"""Buffers between NVMe and the GPU for parameters, where DeepSpeed's defaults are too small or too few."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.deepspeed.fetch import sufficient_buffers
from zeroplan.costs.deepspeed.nvme_swap import parameter_buffers
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload

DEFAULT_SIZE = Offload("nvme").buffer_size


def with_room(job: Job) -> Job:
    """The job with buffers that take its largest tensor and are enough; sizes and counts that were stated stay."""
    params, largest = job.strategy.offload_param, ceil_div(job.model.largest.elements, job.ranks)
    if params is None or params.device != "nvme" or job.strategy.stage != 3:
        return job
    open_size = params.buffer_size == DEFAULT_SIZE
    if open_size and largest > DEFAULT_SIZE:
        job = job.at(offload_param=params._replace(buffer_size=largest))
    if params.buffer_count:
        return job
    enough = sufficient_buffers(job)
    if enough is None or enough.buffer_count == parameter_buffers(job):
        return job
    size = largest if open_size else params.buffer_size
    return job.at(
        offload_param=params._replace(buffer_size=size, buffer_count=enough.buffer_count),
        prefetch_bucket_size=enough.prefetch_bucket_size,
    )
