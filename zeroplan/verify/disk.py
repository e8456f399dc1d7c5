"""The asynchronous file operator, answered by size: which files DeepSpeed keeps and how many bytes it moves.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch


class Disk:
    """Files by path with their sizes, and what was read and written, by (step, phase)."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.moved: Counter[tuple[int, str, str, str]] = Counter()
        self.calls: Counter[tuple[int, str, str, str]] = Counter()
        self.where: Callable[[], tuple[int, str]] = lambda: (0, "init")

    def move(self, way: str, tensor: torch.Tensor, path: str, offset: int) -> None:
        size = tensor.numel() * tensor.element_size()
        step, phase = self.where()
        key = (step, phase, way, kind_of(path))
        self.moved[key] += size
        self.calls[key] += 1
        if way == "write":
            self.files[path] = max(self.files.get(path, 0), offset + size)

    def traffic(self, steps: tuple[int, ...]) -> list[dict[str, Any]]:
        """Reads and writes joined by step, phase and folder."""
        return [
            {"step": key[0], "phase": key[1], "way": key[2], "folder": key[3],
             "calls": self.calls[key], "bytes": size}
            for key, size in self.moved.items() if key[0] in steps
        ]  # fmt: skip


def kind_of(path: str) -> str:
    """The folder below zero_stage_3: 'optimizer' or 'bfloat16params'."""
    return os.path.basename(os.path.dirname(os.path.dirname(path)))


class Handle:
    """DeepSpeed's aio_handle; operations finish at once and are counted for `wait`."""

    def __init__(
        self, disk: Disk, pin: Callable[[torch.Tensor, Any], torch.Tensor], pinned: Any, **settings: Any
    ) -> None:
        self.disk, self.pin, self.pinned, self.settings, self.pending = disk, pin, pinned, settings, 0

    def async_pwrite(self, tensor: torch.Tensor, path: str, offset: int = 0) -> int:
        self.disk.move("write", tensor, path, offset)
        self.pending += 1
        return 0

    def async_pread(self, tensor: torch.Tensor, path: str, offset: int = 0) -> int:
        assert path in self.disk.files, f"{path} was never written"
        self.disk.move("read", tensor, path, offset)
        self.pending += 1
        return 0

    def wait(self) -> int:
        done, self.pending = self.pending, 0
        return done

    def new_cpu_locked_tensor(self, elements: int, like: torch.Tensor) -> torch.Tensor:
        return self.pin(like, (elements,))

    def free_cpu_locked_tensor(self, _tensor: torch.Tensor) -> bool:
        return True

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return bool(self.pinned(tensor))

    def get_alignment(self) -> int:
        return 512
