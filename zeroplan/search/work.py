"""A limit of work: what a search does is counted, not timed, so that a request has the same plan on any machine."""

from __future__ import annotations

from zeroplan.record import NamedTuple
from zeroplan.specs.job import Job

SEARCH = 2_500_000
"""Units of one search: those that end in a second or two stay below."""
COMMAND = 5_000_000
"""Units of all searches behind one plan."""
LEAST = 60_000
"""Units that a search has where a command has none left: enough to look at the leanest strategies."""
COMPLETING = 0.4
"""Share of its limit that a stopped search may do beyond it, to complete what waits."""


class Cost(NamedTuple):
    """Units of one look at a strategy: about microseconds of one core."""

    once: float
    each_tensor: float


BOUND = Cost(80, 0.15)
"""Seconds that it takes at least, or bytes."""
TRACED = Cost(0, 1)
"""Following the model's operators under another micro-batch, sequence or checkpointing."""
GATHERS = Cost(0, 31)
"""Replaying what stage 3's coordinator gathers, and timing that."""
TIMED = Cost(0, 10)
COUNTED = Cost(0, 30)
"""To the byte."""


class Work:
    """What was done of what may be done."""

    def __init__(self, limit: float = SEARCH) -> None:
        self.first = self.limit = limit
        self.done = 0.0

    def add(self, cost: Cost, job: Job) -> None:
        """One look at a strategy."""
        self.done += cost.once + cost.each_tensor * len(job.model.tensors)

    @property
    def is_over(self) -> bool:
        """Whether as much was done as may be."""
        return self.done >= self.limit

    @property
    def stopped(self) -> bool:
        """Whether the limit ended the search: what it came to is not proven."""
        return self.is_over or self.limit != self.first

    def extend(self, share: float) -> None:
        """Allow so much of the first limit from here on."""
        self.limit = self.done + share * self.first


class Allowance:
    """Units of several searches together, of which each takes what is left, up to its own limit."""

    def __init__(self, limit: float = COMMAND, each: float = SEARCH) -> None:
        self.limit, self.each = limit, each
        self.works: list[Work] = []

    @property
    def stopped(self) -> bool:
        """Whether the limit ended any of them."""
        return any(work.stopped for work in self.works)

    @property
    def left(self) -> float:
        """Units that no search has done yet."""
        return self.limit - sum(work.done for work in self.works)

    def work(self, share: float = 1.0) -> Work:
        """For one more search, which may do this share of one's limit."""
        self.works.append(Work(max(LEAST, min(share * self.each, self.left))))
        return self.works[-1]
