"""What a process takes of the card beyond what PyTorch has allocated: outside its allocator, and reserved by it."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div
from zeroplan.categories import Category


def at_most(most: int, percent: int, size: int) -> int:
    """⌈Rp·Mp/100⌉ + S -- what a run of this peak has taken of a card at most: what PyTorch reserved, and what the
    process held outside it [reports].

    The allocator gives back whole free segments alone, so that part of what is free cannot be had.
    """
    return ceil_div(percent * most, 100) + size


def left_by_flattening(psi: int, w: int) -> int:
    """w·Ψ -- blocks of the model as built, which flattening on the card frees into the allocator's cache: smaller than
    long activations, they stay reserved beside them [DeepSpeed runtime/zero/stage_1_and_2.py since #7828].
    """
    return w * psi



# fmt: off
context = Category("context", "zeroplan",
    "CUDA context and libraries of one process",
    note="Measured on single cards between 0.5 GiB (A100, RTX 4090) and 1.1 GiB (V100), 0.8 GiB on an H100 with "
    "cuBLAS's workspaces of 64 MiB on top; the preset says which is taken.")
communicator = Category("communicator", "NCCL issue 964",
    "buffers that NCCL keeps on a card for one communicator",
    note="495 MiB for one rank of DeepSpeed alone on an H100 (torch 2.11), 544 MiB between two A100 over NVLink and "
    "688 MiB among four. By its maintainers (issue 864) they grow with the channels, so with the links' bandwidth, and "
    "not beyond two nodes.")
