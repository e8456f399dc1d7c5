"""What stage 3's coordinator meets in a micro-step: hooks, uses of tensors, and how far apart these are.

How far away the next use of a tensor is, at stage 3: what stage3_max_reuse_distance is compared with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from zeroplan.specs.execution import ModuleHook


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


class AccessOrder(NamedTuple):
    """The same in every micro-step, whatever the coordinator's settings."""

    passes: tuple[Sequence[ModuleHook], Sequence[ModuleHook]]
    """Hooks of forward, and of backward."""
    trace: list[tuple[int, int]]
    """Each use: the tensor, and how many modules were entered before."""
    own: Distances
    full: Distances
    """What the release of a leaf module looks at."""
    last_user: dict[int, int]
    """The last module in forward that uses each tensor."""
    never_left: list[ModuleHook]
    """Modules that backward enters and whose exit never fires."""


def access_order(
    sizes: Sequence[int], passes: tuple[Sequence[ModuleHook], Sequence[ModuleHook]],
    leaves: frozenset[int] = frozenset(), subtrees: Sequence[tuple[int, ...]] = (),
) -> AccessOrder:  # fmt: skip
    """`leaves`: modules that are gathered whole; `subtrees`: all tensors below each module, when there are any."""
    forward, backward = passes
    entered_hooks = [hook for hooks in (forward, backward) for hook in hooks if hook.enters]
    uses = enumerate(hook.tensors for hook in entered_hooks)
    left = {hook.module for hook in backward if not hook.enters}
    own = Distances([() if hook.module in leaves else hook.tensors for hook in entered_hooks], sizes)
    return AccessOrder(
        passes,
        [(index, step) for step, read in uses for index in (sorted(set(read)) if len(read) > 1 else read)],
        own, Distances([subtrees[hook.module] for hook in entered_hooks], sizes) if leaves else own,
        {index: hook.module for hook in forward if hook.tensors for index in hook.tensors},
        [hook for hook in backward if hook.enters and hook.module not in left],
    )  # fmt: skip
