"""For which of stage 3's thresholds a replay holds: the coordinator only asks whether a threshold exceeds a count.

So all that lie between the same two counts make it do the same: stage3_prefetch_bucket_size,
stage3_max_live_parameters and stage3_max_reuse_distance (DeepSpeed 0.19.8,
runtime/zero/partitioned_param_coordinator.py). Numbers are elements.

What decides stage 3's gathers, beside the model's sizes and its order of execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from zeroplan.specs.strategy import Strategy


class Settings(NamedTuple):
    """Settings of the coordinator in one run."""

    persistent: frozenset[int]
    ranks: int
    prefetch_bucket_size: int
    max_live_parameters: int
    max_reuse_distance: int
    grad_accum: int
    from_host: bool
    """Partitions are copied to the GPU first."""
    all_reduce: bool
    """Coalesced gathers are all-reduces, and the parameters views of their buffer."""
    sequential: bool
    """Every tensor is gathered by itself."""
    leaves: frozenset[int]
    """Modules gathered whole."""
    subtrees: tuple[tuple[int, ...], ...]
    """All tensors below each module, when there are leaves."""
    viewed: frozenset[int]
    """Tensors of which forward saves views for backward."""
    checkpointed: frozenset[int]
    """Tensors of layers that run again in backward."""
    reentrant: bool
    """They do so under a backward of their own, whose graph saves parameters as forward does without checkpointing."""
    swapped: frozenset[int]
    """Tensors whose partitions live on NVMe, and the buffers between NVMe and the GPU."""
    swap_buffers: int
    low_precision: frozenset[int]
    """Tensors that travel in fewer bytes (autocast, quantized weights), and how many times fewer."""
    smaller: int
    dequantized: str
    """The dtype that quantized weights become; empty when none are."""
    second: Sequence[int]
    """Elements of each tensor's secondary partition, if there are any, and the ranks that share them (hpZ)."""
    near: int
    frozen: frozenset[int] = frozenset()
    """Tensors that do not train."""

    def joined(self, size: int) -> int:
        """Elements beside a tensor while its pieces are joined in the dtype that they came in."""
        return {"float16": 0, "bfloat16": size}.get(self.dequantized, size // 2)

    def flat(self, elements: int, *, alone: bool) -> int:
        """fp16 that 8-bit codes become first; what came alone in fp16 stays as it is."""
        return {"float16": 0 if alone else elements, "bfloat16": elements, "float32": elements // 2}.get(
            self.dequantized, 0
        )


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
        """Whether it is above the count: asked a thousand times a replay."""
        if count < self.value:
            if count > self.above:  # noqa: PLR1730
                self.above = count
            return True
        if count < self.upto:  # noqa: PLR1730
            self.upto = count
        return False

    @property
    def span(self) -> ThresholdRange:
        return ThresholdRange(self.above, self.upto)
