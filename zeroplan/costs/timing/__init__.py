"""How long a step takes: work on the GPU, traffic that shows, what the host and the disk do, the update."""

from __future__ import annotations

from zeroplan.specs.job import Job


def is_timed(job: Job) -> bool:
    """Whether a clock of this job's own card can be given."""
    return job.cluster.gpu is not None and job.strategy.backend != "cpu"
