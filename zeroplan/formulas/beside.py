"""Seconds of what is done beside the GPU: copies over PCIe and to disk, and the optimizer on the CPU."""

from __future__ import annotations


def copied(moved_bytes: float, speed: float) -> float:
    """y/u -- bytes over a link or to a disk at its rate [throughput]."""
    return moved_bytes / speed


def updated_on_host(updated: float, pace: float) -> float:
    """U/p -- the optimizer on the CPUs of one node, which all ranks there share [ZeRO-Offload Table 4]."""
    return updated / pace
