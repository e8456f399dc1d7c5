"""What decides stage 3's gathers, beside the model's sizes and its order of execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


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

    def joined(self, size: int) -> int:
        """Elements beside a tensor while its pieces are joined in the dtype that they came in."""
        return {"float16": 0, "bfloat16": size}.get(self.dequantized, size // 2)

    def flat(self, elements: int, *, alone: bool) -> int:
        """fp16 that 8-bit codes become first; what came alone in fp16 stays as it is."""
        return {"float16": 0 if alone else elements, "bfloat16": elements, "float32": elements // 2}.get(
            self.dequantized, 0
        )
