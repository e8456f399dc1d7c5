"""For which of stage 3's thresholds a replay holds: the coordinator only asks whether a threshold exceeds a count.

So all that lie between the same two counts make it do the same: stage3_prefetch_bucket_size,
stage3_max_live_parameters and stage3_max_reuse_distance (DeepSpeed 0.19.8,
runtime/zero/partitioned_param_coordinator.py). Numbers are elements.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from zeroplan.specs.strategy import Strategy


class ThresholdRange(NamedTuple):
    """Thresholds above the one count, and no greater than the other."""

    above: float = -inf
    upto: float = inf

    def has(self, threshold: int) -> bool:
        return self.above < threshold <= self.upto


class ReplayThresholds(NamedTuple):
    """The thresholds of one replay and of all that would be like it."""

    bucket: ThresholdRange = ThresholdRange()
    live: ThresholdRange = ThresholdRange()
    reach: ThresholdRange = ThresholdRange()

    def has(self, strategy: Strategy) -> bool:
        """Whether the replay is this strategy's too, which is the same in all else."""
        return (
            self.bucket.has(strategy.prefetch_bucket_size) and self.live.has(strategy.max_live_parameters)
            and self.reach.has(strategy.max_reuse_distance)
        )  # fmt: skip


class Threshold:
    """One number, and the counts it was compared with that are nearest to it."""

    def __init__(self, value: int) -> None:
        self.value, self.above, self.upto = value, -inf, inf

    def exceeds(self, count: int) -> bool:
        if count < self.value:
            self.above = max(self.above, count)
            return True
        self.upto = min(self.upto, count)
        return False

    def grows(self, each: int, times: int) -> int:
        """How often, up to so many times, each time it may be compared with so many more and nothing is decided
        otherwise: then it was. What it did not exceed, it does not exceed when that grows.
        """
        if each < 0:
            return 0
        if each and self.above > -inf:
            times = min(times, int(self.value - 1 - self.above) // each)
            self.above += times * each
        return times

    @property
    def span(self) -> ThresholdRange:
        return ThresholdRange(self.above, self.upto)
