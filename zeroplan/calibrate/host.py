"""The host: how much memory a node has, and how many parameters/s its CPUs update."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from zeroplan.calibrate.findings import Findings, timed
from zeroplan.units import GiB

UPDATED, QUICK_UPDATED = 1 << 26, 1 << 24
"""Parameters of one update: far more bytes than caches hold (16 each)."""


def machine() -> str:
    """The CPU, and how many of it this process may use."""
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} CPUs"


def memory(findings: Findings) -> None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemTotal:"):
            findings.add("host_memory", int(line.split()[1]) << 10, "B", "MemTotal of /proc/meminfo")
            return
    findings.left_out.append("host memory: there is no /proc/meminfo here")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def adam(findings: Findings, *, quick: bool) -> None:
    """One process on all CPUs, as the ranks of a node share them: DeepSpeed's own where its operator can be built."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("OMP_NUM_THREADS") == "1":
        os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))  # torchrun's 1, for ranks that share a node
    import torch

    count = QUICK_UPDATED if quick else UPDATED
    weights = torch.nn.Parameter(torch.zeros(count))
    weights.grad = torch.full((count,), 1e-3)
    optimizer, name = _optimizer(weights)
    spent = timed(optimizer.step, lambda: None, seconds=1.0 if quick else 5.0)
    how = f"{name}, {count:,} fp32 parameters, {torch.get_num_threads()} threads"
    findings.add("host_adam", count / spent, "/s", how)
    size = f"{count * 16 / GiB:.2f} GiB"
    findings.observations.append(f"{name}: {size} of weights, gradients and moments in {spent:.4f} s")


def _optimizer(weights: Any) -> tuple[Any, str]:
    """DeepSpeedCPUAdam compiles itself on first use; torch's fused Adam stands in, and the name says so."""
    import torch

    try:
        with _silence():
            import deepspeed
            from deepspeed.ops.adam import DeepSpeedCPUAdam

            made = DeepSpeedCPUAdam([weights], lr=1e-4)
        return made, f"DeepSpeedCPUAdam {deepspeed.__version__}, torch {torch.__version__}"
    except Exception as error:  # no deepspeed, no compiler, no match of versions: whatever it is
        reason = " ".join(str(error).split())[:60] or type(error).__name__
        stands_in = torch.optim.Adam([weights], lr=1e-4, fused=True)
        return stands_in, f"torch.optim.Adam(fused=True) {torch.__version__} in place of DeepSpeedCPUAdam ({reason})"


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """DeepSpeed and its compiler write to both streams, past Python's."""
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for stream, descriptor in zip((1, 2), kept, strict=True):
            os.dup2(descriptor, stream)
            os.close(descriptor)
        os.close(nowhere)
