"""What stage 3's coordinator meets in a micro-step: visits, uses of tensors, and how far apart these are."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.deepspeed.layer_intervals import Passes
from zeroplan.costs.deepspeed.reuse import Distances
from zeroplan.record import NamedTuple
from zeroplan.specs.execution import Visit


class AccessOrder(NamedTuple):
    """The same in every micro-step, whatever the coordinator's settings."""

    passes: Passes
    trace: list[tuple[int, int]]
    """Each use: the tensor, and how many modules were entered before."""
    own: Distances
    whole: Distances
    """What the release of a leaf module looks at."""
    last_user: dict[int, int]
    """Of each tensor, in forward."""
    never_left: list[Visit]
    """Modules that backward enters and whose exit never fires."""


def access_order(
    sizes: Sequence[int], passes: Passes, leaves: frozenset[int] = frozenset(),
    subtrees: Sequence[tuple[int, ...]] = (),
) -> AccessOrder:  # fmt: skip
    """`leaves`: modules that are gathered whole; `subtrees`: all tensors below each module, when there are any."""
    forward, backward = passes.visits
    visited = [visit for visits in (forward, backward) for visit in visits if visit.enters]
    uses = enumerate(visit.tensors for visit in visited)
    left = {visit.module for visit in backward if not visit.enters}
    own = Distances([() if visit.module in leaves else visit.tensors for visit in visited], sizes)
    return AccessOrder(
        passes,
        [(index, step) for step, read in uses for index in (sorted(set(read)) if len(read) > 1 else read)],
        own, Distances([subtrees[visit.module] for visit in visited], sizes) if leaves else own,
        {index: visit.module for visit in forward if visit.tensors for index in visit.tensors},
        [visit for visit in backward if visit.enters and visit.module not in left],
    )  # fmt: skip
