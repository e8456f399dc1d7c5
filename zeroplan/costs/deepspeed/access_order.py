"""What stage 3's coordinator meets in a micro-step: hooks, uses of tensors, and how far apart these are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.costs.deepspeed.layer_intervals import Passes
from zeroplan.costs.deepspeed.reuse_distance import Distances
from zeroplan.specs.execution import ModuleHook


class AccessOrder(NamedTuple):
    """The same in every micro-step, whatever the coordinator's settings."""

    passes: Passes
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
    sizes: Sequence[int], passes: Passes, leaves: frozenset[int] = frozenset(),
    subtrees: Sequence[tuple[int, ...]] = (),
) -> AccessOrder:  # fmt: skip
    """`leaves`: modules that are gathered whole; `subtrees`: all tensors below each module, when there are any."""
    forward, backward = passes.hooks
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
