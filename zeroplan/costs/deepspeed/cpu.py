"""Where a run on DeepSpeed's CPU accelerator (`--backend cpu`) differs from CUDA with NCCL.

Held bytes and traffic are the same. Torch's own optimizers go tensor by tensor instead of foreach, and nothing is
page-locked (DeepSpeed 0.19.8 accelerator/cpu_accelerator.py: pin_memory). GPU and host are one memory there, so what
an offload moves to the host stays in the same place.
"""

from __future__ import annotations


def pins() -> bool:
    """Page-locking does nothing."""
    return False
