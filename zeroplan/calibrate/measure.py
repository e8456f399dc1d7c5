"""Everything of a machine that can be measured on it, and in words what could not be."""

from __future__ import annotations

import importlib.util
import os
import shutil
from datetime import timedelta

from zeroplan.calibrate import disk, host
from zeroplan.calibrate.findings import Findings
from zeroplan.errors import SpecError

NEEDS_TORCH = "pip install torch (and deepspeed, for its own CPU Adam)"


def measure(folder: str, *, quick: bool) -> Findings:
    """Measure this machine, with its disk under `folder`. Raises `SpecError` for a folder that cannot be written to."""
    findings, has_torch = Findings(), importlib.util.find_spec("torch") is not None
    if rank() == 0:  # the others would share its disk and its CPUs
        host.memory(findings)
        _disk(findings, folder, quick=quick)
        if has_torch:
            host.adam(findings, quick=quick)
    if has_torch:
        _cards(findings, quick=quick)
    else:
        findings.left_out.append(f"CPU Adam, and GPUs if there are any: no torch here; {NEEDS_TORCH}")
    return findings


def rank() -> int:
    """The rank of this process among those that torchrun started; 0 alone."""
    text = os.environ.get("RANK", "0")
    return int(text) if text.isdecimal() else 0


def _disk(findings: Findings, folder: str, *, quick: bool) -> None:
    size = disk.QUICK_SIZE if quick else disk.SIZE
    try:
        usage = shutil.disk_usage(folder)
        if usage.free < 2 * size:
            raise SpecError(
                f"--disk {folder}",
                f"{usage.free >> 20:,} MiB free",
                f"{2 * size >> 20:,} MiB",
                "--disk FOLDER of another disk",
            )
        rates = disk.measure(folder, size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(
            f"--disk {folder}", reason.lower(), "a folder on the disk to measure", "--disk /local_nvme"
        ) from error
    findings.add("nvme", usage.total, "B", "size of the file system that was measured")
    findings.add("nvme_read", rates.read, "B/s", rates.how)
    findings.add("nvme_write", rates.write, "B/s", rates.how)


def _cards(findings: Findings, *, quick: bool) -> None:
    import torch

    from zeroplan.calibrate import card, ring

    if not torch.cuda.is_available():
        findings.left_out.append("matrix products, GPU memory, PCIe, collectives: torch sees no GPU here")
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local)
    title = torch.cuda.get_device_name(local)
    findings.gpu, findings.gpus_per_node = card.preset_of(title), torch.cuda.device_count()
    for part in (card.products, card.memory, card.host_link):
        part(findings, f"cuda:{local}", quick=quick)
    if findings.gpu is None:
        findings.left_out.append(f"the card's preset: none is called {title}; write gpu: NAME into the file")
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        findings.left_out.append(
            "collectives: one rank; torchrun --nproc_per_node GPUS -m zeroplan calibrate runs several"
        )
        return
    torch.distributed.init_process_group("nccl", timeout=timedelta(minutes=30))  # the first rank builds an operator
    try:
        ring.keep(findings, ring.measure(f"cuda:{local}", quick=quick), "NCCL")
    finally:
        torch.distributed.destroy_process_group()
