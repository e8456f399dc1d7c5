"""Copies between GPU and host memory, as DeepSpeed asks for them: how many, and how many bytes cross.

A copy that changes the dtype as well converts before it crosses (torch ATen/native/cuda/Copy.cu), so what crosses has
the destination's dtype. What a model reads back is not in it: scalars (`item`), and lists of int64 (`tolist`).
Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Key = tuple[int, str, str, str]


class Crossings:
    """What crossed, by (step, phase, way, asked by)."""

    def __init__(self) -> None:
        self.bytes: Counter[Key] = Counter()
        self.calls: Counter[Key] = Counter()
        self.where: Callable[[], tuple[int, str]] = lambda: (0, "init")

    def see(self, func: Any, args: Any, made: Any, asked_by: Callable[[], str]) -> None:
        """Count an operator that copies from one memory to the other."""
        if func is aten.copy_.default:
            target, source = args[0], args[1]
        elif func is aten._to_copy.default:
            target, source = made, args[0]
        else:
            return
        ends = source.device.type, target.device.type
        if ends.count("cpu") != 1 or (ends[1] == "cpu" and source.dtype == torch.int64):
            return
        way = "to_host" if ends[1] == "cpu" else "to_gpu"
        key = (*self.where(), way, asked_by())
        self.bytes[key] += target.numel() * target.element_size()
        self.calls[key] += 1

    def traffic(self, steps: tuple[int, ...]) -> list[dict[str, Any]]:
        """Copies joined by step, phase, way and who asked."""
        return [
            {"step": key[0], "phase": key[1], "way": key[2], "asked_by": key[3],
             "calls": self.calls[key], "bytes": size}
            for key, size in self.bytes.items() if key[0] in steps
        ]  # fmt: skip
