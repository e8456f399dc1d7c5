"""ZenFlow's overlap_step: the host's update in a process of its own, on memory that both share (stages 1 and 2).

DeepSpeed 0.19.8 runtime/zenflow/zenflow_utils.py: start_optimizer_process, zenflow_optimizer_process;
zenflow_stage_1_and_2.py: ZenFlowZeroOptimizerParallel. What is shared is page-locked no longer.
"""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.costs.deepspeed.layout import flat_groups
from zeroplan.costs.deepspeed.nvme_swap import HostAllocation
from zeroplan.costs.deepspeed.resident import DTYPE_BYTES
from zeroplan.specs.job import Job

CONTROL = 21_592
"""Bytes of the block through which the two processes talk (csrc/adam/cpu_adam_impl.cpp: ZenControl)."""


def shared(job: Job) -> Iterator[HostAllocation]:
    """One gradient is filled while the other is read, and each has its own states."""
    master = job.strategy.master
    shares = [DTYPE_BYTES[master] * layout.partition for layout in flat_groups(job)]
    yield HostAllocation("master weights", master, tuple(shares))
    yield HostAllocation("gradients for the optimizer", master, tuple(2 * share for share in shares))
    yield HostAllocation("updated weights", master, tuple(shares))
    yield HostAllocation("optimizer states", master, tuple(4 * share for share in shares))
    yield HostAllocation("control block", "uint8", (CONTROL,))
