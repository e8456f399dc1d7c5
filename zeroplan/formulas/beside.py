"""Seconds of what is done beside the GPU: copies over PCIe and to disk, and the optimizer on the CPU."""

from __future__ import annotations


def copied(moved_bytes: float, speed: float) -> float:
    """y/u -- bytes over a link or to a disk at its rate [throughput]."""
    return moved_bytes / speed


def requested(moved_bytes: float, in_flight: float, delay: float, awaited: float, speed: float) -> float:
    """y·(δ + ε/u)/l -- files as fast as they are requested: Little's law, all that is in flight comes in one delay and
    the disk's own time for what is waited for [DeepSpeed csrc/aio/common/deepspeed_aio_common.cpp].
    """
    return moved_bytes * (delay + awaited / speed) / in_flight


def updated_on_host(updated: float, pace: float) -> float:
    """U/p -- the optimizer on the CPUs of one node, which all ranks there share [ZeRO-Offload Table 4]."""
    return updated / pace
