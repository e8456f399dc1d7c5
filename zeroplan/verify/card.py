"""A CUDA device's own numbers beside those of the dispatch mode: what its caching allocator gave out and reserved.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from zeroplan.verify.stand_ins import StandIns

HISTORY = 1_000_000
"""Allocations and frees that are kept of a phase."""
Block = tuple[int, int]
"""Address, and the bytes that were asked for."""


class CardStandIns(StandIns):
    """Nothing stands in: real tensors on the card and on the host. Keeps where tensors were."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: set[Block] = set()

    def tier(self, storage: torch.UntypedStorage) -> str:
        if storage.device.type == "cuda":
            return "gpu"
        return "host_pinned" if storage.is_pinned() else "host"

    def born(self, storage: torch.UntypedStorage) -> None:
        if storage.device.type == "cuda":
            self.tensors.add((storage.data_ptr(), storage.nbytes()))


class Phase:
    """What the allocator did in a phase; `readings` once it has ended."""

    def __init__(self) -> None:
        self.before = _blocks()
        self.readings: dict[str, Any] = {}

    def end(self, tensors: set[Block]) -> None:
        """Peaks of the phase, and of the blocks at its fullest moment those that were no tensor of Python's."""
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        self.readings = {
            "max_memory_allocated": torch.cuda.max_memory_allocated(),
            "max_memory_reserved": torch.cuda.max_memory_reserved(),
            "memory_allocated": torch.cuda.memory_allocated(),
            "max_requested": stats["requested_bytes.all.peak"],
            "max_active": stats["active_bytes.all.peak"],
            "inactive_split": stats["inactive_split_bytes.all.current"],
            "segments": stats["segment.all.current"],
        }
        fullest = _fullest(self.before, _events())
        self.readings["fullest"] = {
            "requested": sum(size * times for (_place, size), times in fullest.items()),
            "no_tensor": _by_size({block: times for block, times in fullest.items() if block not in tensors}),
        }


@contextlib.contextmanager
def watched(tensors: set[Block]) -> Iterator[Phase]:
    """Look for a phase's peaks; `tensors` is filled meanwhile."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    phase = Phase()
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=HISTORY)
    try:
        yield phase
    finally:
        phase.end(tensors)
        torch.cuda.memory._record_memory_history(None)


def _blocks() -> Counter[Block]:
    """What is given out now."""
    return Counter(
        (block["address"], block["requested_size"])
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )


def _events() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    return events


def _fullest(before: Counter[Block], events: list[dict[str, Any]]) -> Counter[Block]:
    """The blocks given out when their bytes were most."""
    live, now = before.copy(), sum(size * times for (_place, size), times in before.items())
    most, moment = now, 0
    for index, event in enumerate(events, 1):
        if event["action"] == "alloc":
            now += event["size"]
        elif event["action"] == "free_requested":
            now -= event["size"]
        if now > most:
            most, moment = now, index
    for event in events[:moment]:
        if event["action"] == "alloc":
            live[event["addr"], event["size"]] += 1
        elif event["action"] == "free_requested":
            live[event["addr"], event["size"]] -= 1
    return +live


def _by_size(blocks: dict[Block, int]) -> list[list[int]]:
    """[bytes, how many], largest first."""
    counts = Counter[int]()
    for (_place, size), times in blocks.items():
        counts[size] += times
    return [[size, times] for size, times in sorted(counts.items(), reverse=True)]


def described() -> dict[str, Any]:
    """The card, what the driver has taken beside the allocator (context and libraries' own), and page-locked memory.

    Other processes on the card count in `outside`. Page-locked bytes are those of torch's allocator: as it gave them
    out and as it asked the driver for them.
    """
    free, total = torch.cuda.mem_get_info()
    host = torch.cuda.host_memory_stats()
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "name": properties.name, "total": total, "cuda": torch.version.cuda,
        "capability": [properties.major, properties.minor],
        "outside": total - free - torch.cuda.memory_reserved(),
        "page_locked": {name: size for name, size in host.items() if "bytes" in name and isinstance(size, int)},
    }  # fmt: skip
