"""How far away the next use of a tensor is, at stage 3: what stage3_max_reuse_distance is compared with."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Distances:
    """Elements of the hooks between two uses of a tensor.

    For the release of a leaf module DeepSpeed counts at each hook all tensors below the module entered, for any other
    the module's own (partitioned_param_coordinator.py:__params_to_release).
    """

    def __init__(self, order: Sequence[Sequence[int]], sizes: Sequence[int]) -> None:
        """`order`: the tensors of each hook, by index into `sizes`."""
        self.uses: dict[int, list[int]] = {}
        elements = [0] * len(order)
        for step, tensors in enumerate(order):
            if tensors:
                elements[step] = sum([sizes[index] for index in tensors])
                for index in tensors:
                    self.uses.setdefault(index, []).append(step)
        self.travelled = [*accumulate(elements, initial=0)]

    def to_next_use(self, index: int, step: int) -> int | None:
        """What the hooks from `step` to the tensor's next use hold; None: it is not used again."""
        uses = self.uses.get(index, [])
        at = bisect_left(uses, step)
        return self.travelled[uses[at]] - self.travelled[step] if at < len(uses) else None
