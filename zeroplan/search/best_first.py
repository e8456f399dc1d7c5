"""The fastest strategy that fits, found by bounds: what could be fastest is looked at first.

A choice waits under the seconds that it takes at least. When it comes up, it is left out if it cannot fit, and else
gives way to its numbers, each under its own seconds; the first of these that fits is the fastest of all, for whatever
still waits takes as long at least. Of equally fast ones the simplest comes first.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.search.bounds import Bounds
from zeroplan.search.candidate import Candidate, evaluate, timed
from zeroplan.search.space import Branch, Space
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

ROUGH, BOUND, EXACT = range(3)
"""What a waiting entry's seconds are: without products that run again, with them, and as they are."""
USUAL = Strategy(stage=3)
AGAIN = ("none", "full", "selective")


class Found(NamedTuple):
    """What a search came to."""

    best: Candidate | None
    stood_for: int = 0
    """Strategies of the space; how many of them were timed, and how many counted to the byte."""
    timed: int = 0
    counted: int = 0


def simplicity(job: Job) -> tuple[Any, ...]:
    """Smaller is simpler: no offload, the lowest stage, no checkpointing, a larger micro-batch, the usual numbers."""
    strategy, kind = job.strategy, job.strategy.checkpointing
    devices = [part for part in (strategy.offload_optimizer, strategy.offload_param) if part]
    offload = sum({"cpu": 1, "nvme": 3}[part.device] + (part.ratio < 1) for part in devices)
    again = AGAIN.index(kind) if kind in AGAIN else len(AGAIN)
    buckets = (strategy.reduce_bucket_size, strategy.prefetch_bucket_size)
    usual = (USUAL.reduce_bucket_size, USUAL.prefetch_bucket_size)
    return (
        offload, strategy.stage, again, kind, -strategy.micro_batch, strategy.overlaps is False,
        not strategy.contiguous_gradients,
        *(size != other for size, other in zip(buckets, usual, strict=True)), *(-size for size in buckets),
    )  # fmt: skip


class Search:
    """Entries that wait, the one with the fewest seconds first."""

    def __init__(self, space: Space, reserve: float) -> None:
        self.space, self.reserve, self.bounds = space, reserve, Bounds(reserve)
        self.waiting: list[tuple[float, int, tuple[Any, ...], int, Job, Branch]] = []
        self.turn = count()
        self.timed = self.counted = 0

    def push(self, seconds: float, kind: int, job: Job, branch: Branch) -> None:
        heappush(self.waiting, (seconds, kind, simplicity(job), next(self.turn), job, branch))

    def run(self) -> Candidate | None:
        """None when nothing fits."""
        for branch in self.space.branches:
            for size in self.space.sizes:
                for overlaps in branch.numbers.get("overlap_comm", (None,)):
                    job = self.space.sized(branch, size).at(overlap_comm=overlaps, **branch.loosest)
                    self.push(self.bounds.seconds(job, traced=False), ROUGH, job, branch)
        while self.waiting:
            seconds, kind, _simple, _turn, job, branch = heappop(self.waiting)
            if kind == ROUGH and self._may_fit(job, branch):
                self.push(max(seconds, self.bounds.seconds(job)), BOUND, job, branch)
            elif kind == BOUND:
                for chosen in branch.combinations(*branch.timed):
                    self._time(job.at(**chosen), branch)
            elif kind == EXACT and (found := self._fitting(job)):
                return found
        return None

    def _may_fit(self, job: Job, branch: Branch) -> bool:
        overlaps = {"overlap_comm": job.strategy.overlap_comm} if "overlap_comm" in branch.numbers else {}
        return self.bounds.may_fit(job.at(**branch.leanest | overlaps))

    def _time(self, job: Job, branch: Branch) -> None:
        """What DeepSpeed stops at (too few buffers for NVMe) is left out."""
        self.timed += 1
        try:
            self.push(timed(job), EXACT, job, branch)
        except ContradictionError:
            return

    def _fitting(self, job: Job) -> Candidate | None:
        if not self.bounds.may_fit(job):
            return None
        self.counted += 1
        try:
            found = evaluate(job, self.reserve)
        except ContradictionError:  # too few buffers for NVMe, in the run's first step
            return None
        return found if found.fit.fits is not False else None


def fastest(space: Space, reserve: float) -> Found:
    """The fastest strategy of a space that fits, keeping `reserve` of each card free."""
    search = Search(space, reserve)
    best = search.run()
    return Found(best, space.size, search.timed, search.counted)
