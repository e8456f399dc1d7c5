"""A CUDA device's own numbers beside those of the dispatch mode: what its caching allocator gave out and reserved.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

from typing import Any

import torch

from zeroplan.verify.stand_ins import StandIns


class CardStandIns(StandIns):
    """Nothing stands in: real tensors on the card and on the host."""

    def tier(self, storage: torch.UntypedStorage) -> str:
        if storage.device.type == "cuda":
            return "gpu"
        return "host_pinned" if storage.is_pinned() else "host"


def look_again() -> None:
    """Begin to look for a phase's peak."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()


def peaks() -> dict[str, int]:
    """Of the phase so far: most bytes given out, most reserved, and given out now."""
    torch.cuda.synchronize()
    return {
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "memory_allocated": torch.cuda.memory_allocated(),
    }


def described() -> dict[str, Any]:
    """The card, and what the driver has taken beside the allocator: the context and libraries' own workspaces.

    Other processes on the card count in it.
    """
    free, total = torch.cuda.mem_get_info()
    return {
        "name": torch.cuda.get_device_name(), "total": total, "cuda": torch.version.cuda,
        "outside": total - free - torch.cuda.memory_reserved(),
    }  # fmt: skip
