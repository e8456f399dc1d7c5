"""A GPU's own rates: products by shape, its memory, and PCIe. A test runs it on the CPU."""

from __future__ import annotations

from functools import partial
from typing import Any

from zeroplan.calibrate.findings import Findings, timed

SHAPES = ((1024, 1024, 1024), (2048, 4096, 4096), (4096, 4096, 4096), (4096, 4096, 14336), (8192, 8192, 8192))
"""Rows, columns and what is summed over: the last, the largest, gives the sustained rate."""
COPIED = 1 << 30
"""Bytes of a copy."""


def products(
    findings: Findings, device: str, *, quick: bool, shapes: tuple[tuple[int, int, int], ...] = SHAPES
) -> None:
    """bf16 matrix products; the largest runs long enough that clocks settle under load."""
    import torch

    rate = 0.0
    for m, n, k in shapes:
        a, b = torch.randn(m, k, device=device).bfloat16(), torch.randn(k, n, device=device).bfloat16()
        out = torch.empty(m, n, device=device, dtype=torch.bfloat16)
        length = 1.0 if quick else 10.0 if (m, n, k) == shapes[-1] else 1.0
        spent = timed(partial(torch.mm, a, b, out=out), _waiting(device), seconds=length)
        rate = 2 * m * n * k / spent
        findings.observations.append(f"bf16 product of {m} x {k} and {k} x {n}: {rate / 1e12:.4g} TFLOP/s")
    shape = " x ".join(map(str, shapes[-1]))
    findings.add("sustained_matmul", rate, "FLOP/s", f"torch.mm in bf16, {shape}, torch {torch.__version__}")


def memory(findings: Findings, device: str, *, quick: bool, size: int = COPIED) -> None:
    """A copy within the card reads and writes each byte."""
    import torch

    source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    spent = timed(lambda: target.copy_(source), _waiting(device), seconds=1.0 if quick else 3.0)
    findings.add(
        "memory_bandwidth", 2 * size / spent, "B/s", f"copy of {size >> 20} MiB within the card, read and written"
    )


def host_link(findings: Findings, device: str, *, quick: bool, size: int = COPIED) -> None:
    """Both ways, from page-locked memory and from any; the slower page-locked way is the figure."""
    import torch

    here = torch.empty(size, dtype=torch.uint8, device=device)
    rates = {}
    for pinned in (True, False):
        there = torch.empty(size, dtype=torch.uint8, pin_memory=pinned and device != "cpu")
        for way, target, source in (("to the card", here, there), ("to the host", there, here)):
            spent = timed(
                partial(target.copy_, source, non_blocking=True),
                _waiting(device),
                seconds=1.0 if quick else 3.0,
            )
            rates[pinned, way] = size / spent
            kind = "page-locked" if pinned else "pageable"
            findings.observations.append(f"{kind} memory, {way}: {size / spent / 1e9:.4g} GB/s")
    slower = min(rate for (pinned, _way), rate in rates.items() if pinned)
    how = f"copies of {size >> 20} MiB from and to page-locked memory, the slower way"
    findings.add("host_link", slower, "B/s", how)


def preset_of(title: str) -> str | None:
    """The preset of a card by the name that torch gives it: 'NVIDIA A100-SXM4-80GB' is a100-80gb."""
    from zeroplan.catalog import hardware
    from zeroplan.errors import UnknownNameError

    words = title.lower().split()
    name = "-".join(word for word in words if word not in ("nvidia", "amd", "tesla"))
    try:
        return hardware.gpu(name).name
    except UnknownNameError:
        return None


def _waiting(device: str) -> Any:
    import torch

    return torch.cuda.synchronize if device != "cpu" else lambda: None
