"""Planning questions around a plan: how many GPUs are enough, and how large a model may be.

Whether anything fits is seen from strategies that need little, one of each stage and offload, and where none of them
does, from the search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.plan import has_any, leanest
from zeroplan.search import Candidate
from zeroplan.specs.job import Job

Fixed = dict[str, Any]


class Lack(NamedTuple):
    """What comes nearest to fitting, and by how much it does not."""

    candidate: Candidate
    tier: str
    """gpu, host or nvme: the first that is short."""
    bytes: int
    """That are missing on one GPU or one node."""


class Fewest(NamedTuple):
    """The fewest GPUs on which something fits."""

    gpus: int | None
    """None: nothing fits on as many as were tried."""
    smaller: int | None = None
    """The next smaller number."""
    lack: Lack | None = None
    """What the next smaller number lacks."""
    late: float | None = None
    """Seconds by which the next smaller number misses a deadline, where it has room."""


def lack(candidates: Sequence[Candidate]) -> Lack | None:
    """What the strategy lacks that misses the fewest bytes, of those that do not fit."""
    missing = [(sum(one.fit.lacking.values()), one) for one in candidates if not one.fit.accepted]
    if not missing:
        return None
    _bytes, candidate = min(missing, key=lambda pair: pair[0])
    tier, size = next(iter(candidate.fit.lacking.items()))
    return Lack(candidate, tier, size)


def fewest(
    job_on: Callable[[int], tuple[Job, Fixed]], counts: Sequence[int], node: int, reserve: float | None,
    late: Callable[[Job, Fixed], float] = lambda _job, _fixed: 0.0,
    quick: Callable[[int], bool] = lambda _gpus: True,
) -> Fewest:  # fmt: skip
    """The first of `counts`, in ascending order, on which something fits, and ends in time.

    `late`: seconds that the fastest plan of a job ends after its deadline; 0 or less: in time. `quick`: whether a count
    may end in time at all, which costs less to say.

    Up to a whole node each is tried, for more GPUs also need more of its memory; beyond it what fits on some nodes is
    taken to fit on more. A count that the job cannot have (its batch is no multiple) counts as not fitting.
    """
    lates: dict[int, float] = {}

    @cache
    def has_room(gpus: int) -> bool:
        try:
            job, fixed = job_on(gpus)
            if not has_any(job, fixed, reserve):
                return False
            lates[gpus] = late(job, fixed)
            return True
        except ContradictionError:
            return False

    def lacks(gpus: int) -> Lack | None:
        try:
            return lack(leanest(*job_on(gpus), reserve))
        except ContradictionError:
            return None

    def enough(gpus: int) -> bool:
        return quick(gpus) and has_room(gpus) and lates[gpus] <= 0

    within = next((index for index, gpus in enumerate(counts) if gpus > node or enough(gpus)), len(counts))
    at = within if within < len(counts) and counts[within] <= node else _first(enough, counts, within)
    if at == 0:
        return Fewest(counts[0])  # fewer are not tried
    smaller = counts[-1 if at is None else at - 1]
    enough_ones = None if at is None else counts[at]
    return Fewest(enough_ones, smaller, None if has_room(smaller) else lacks(smaller), lates.get(smaller))


def _first(enough: Callable[[int], bool], counts: Sequence[int], start: int) -> int | None:
    """The index, from `start` on, of the first that is enough, if then all later ones are: doubled, then halved."""
    width = 1
    while start + width < len(counts) and not enough(counts[start + width - 1]):
        width *= 2
    low, high = start + width // 2, min(start + width, len(counts))
    index = bisect_left(counts, True, lo=low, hi=high, key=enough)
    return index if index < high else None
