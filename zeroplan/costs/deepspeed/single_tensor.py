"""What optimizers copy that update one tensor after the other, in operators of their own: torch's single-tensor
implementations, which run on the CPU and where foreach is false, and transformers' Adafactor.
"""

from __future__ import annotations

from collections.abc import Sequence


def temporaries(tensors: Sequence[int], *, made: int, adds_decay: bool) -> int:
    """Most elements at once, where `made` copies of a tensor are alive together (torch/optim/adam.py, adagrad.py,
    sgd.py; transformers optimization.py, Adafactor.step).

    Adam makes a square root and a denominator, Adagrad the latter, Adafactor a square and its sum with epsilon, while
    the last one of the tensor before is still there. Where weight decay is added to gradients, each makes one more,
    which is all that SGD does.
    """
    if not made:
        return max(tensors, default=0) if adds_decay else 0
    each = made + adds_decay
    return max((before + each * size for before, size in zip((0, *tensors), tensors, strict=False)), default=0)
