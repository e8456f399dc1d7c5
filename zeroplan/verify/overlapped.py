"""ZenFlow's second process (overlap_step), run inside this one: its tensors are counted as this rank's.

DeepSpeed's own functions allocate, share and register them (runtime/zenflow/zenflow_utils.py); what stands in is the
process, its cores, and the compiled worker's loop.
Only the child process imports this module (it needs torch and deepspeed).
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch
from deepspeed.runtime.zenflow import zenflow_utils

from zeroplan.verify.storages import HOST


class CompletedEvent:
    """An event that has always happened."""

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return True


class InThisOne:
    """A process whose target runs where it is started, and ends."""

    def __init__(self, target: Any, args: tuple[Any, ...]) -> None:
        self.target, self.args, self.daemon = target, args, False

    def start(self) -> None:
        self.target(*self.args)

    def is_alive(self) -> bool:
        return True


class Context:
    """What multiprocessing.get_context gives."""

    Event, Process = CompletedEvent, InThisOne


class Cores:
    """psutil's Process, of eight cores for each rank."""

    def cpu_affinity(self, _cores: Any = None) -> list[int]:
        return list(range(8))


class Machine:
    """What DeepSpeed asks psutil for."""

    Process = Cores

    @staticmethod
    def cpu_count(logical: bool = True) -> int:  # noqa: ARG004
        return 8


def install(stand_ins: Any, storages: Any) -> None:
    """Shared memory is the host's, and pageable: torch moves what is page-locked out of its block."""

    def share(tensor: torch.Tensor) -> torch.Tensor:
        stand_ins.pinned.pop(tensor.untyped_storage()._cdata, None)
        storages.move(tensor, HOST)
        return tensor

    torch.Tensor.share_memory_ = share  # type: ignore[method-assign, assignment, unused-ignore]
    multiprocessing.get_context = lambda _method=None: Context()  # type: ignore[assignment, return-value, unused-ignore]
    zenflow_utils.psutil = Machine
    zenflow_utils.disable_accelerator = lambda: None
