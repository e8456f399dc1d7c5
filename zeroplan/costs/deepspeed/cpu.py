"""Where a run on DeepSpeed's CPU accelerator (`--backend cpu`) differs from CUDA with NCCL.

Held bytes and traffic are the same. Torch's own optimizers go tensor by tensor instead of foreach (on a GPU too where
foreach is false), and nothing is page-locked (DeepSpeed 0.19.8 accelerator/cpu_accelerator.py: pin_memory). GPU and
host are one memory there, so what an offload moves to the host stays in the same place.
"""

from __future__ import annotations

from collections.abc import Sequence


def temporaries(tensors: Sequence[int], *, adam: bool, adagrad: bool, adds_decay: bool) -> int:
    """Elements that torch's own make as they go tensor by tensor (torch/optim/adam.py, adagrad.py, sgd.py).

    Of each, Adam makes a square root and a denominator, Adagrad the latter, while the one before's is still there;
    where weight decay is added to gradients, each makes one more, which is all that SGD does.
    """
    if not (adam or adagrad):
        return max(tensors, default=0) if adds_decay else 0
    made = (2 if adam else 1) + adds_decay
    return max((before + made * size for before, size in zip((0, *tensors), tensors, strict=False)), default=0)


def pins() -> bool:
    """Page-locking does nothing."""
    return False
