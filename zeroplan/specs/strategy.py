"""A strategy: what a ds_config.json (and the launch around it) decides."""

from __future__ import annotations

import sys
from typing import NamedTuple

PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
CHECKPOINTING = ("none", "selective", "full")
ATTENTION = ("eager", "sdpa", "flash")
STAGES = (0, 1, 2, 3)
DEVICES = ("none", "cpu", "nvme")


class Offload(NamedTuple):
    """An offload section; defaults are DeepSpeed 0.19.8's (runtime/zero/offload_config.py)."""

    device: str
    pin_memory: bool = True
    buffer_count: int = 0
    """0 stands for the section's own default: 5 for parameters, 4 for the optimizer."""
    buffer_size: int = 100_000_000
    max_in_cpu: int = 1_000_000_000
    ratio: float = 1.0
    nvme_path: str | None = None


class Strategy(NamedTuple):
    """Sizes are elements, as DeepSpeed counts them; defaults are DeepSpeed 0.19.8's (runtime/zero/config.py)."""

    stage: int
    precision: str = "bf16"
    optimizer: str = "adamw"
    micro_batch: int = 1
    grad_accum: int = 1
    checkpointing: str = "none"
    attention: str = "sdpa"
    offload_optimizer: Offload | None = None
    offload_param: Offload | None = None
    reduce_bucket_size: int = 500_000_000
    allgather_bucket_size: int = 500_000_000
    prefetch_bucket_size: int = 50_000_000
    param_persistence_threshold: int = 100_000
    model_persistence_threshold: int = sys.maxsize
    max_live_parameters: int = 1_000_000_000
    max_reuse_distance: int = 1_000_000_000
    sub_group_size: int = 1_000_000_000
    overlap_comm: bool | None = None
    """None: DeepSpeed decides, on at stage 3 only."""
    contiguous_gradients: bool = True
    reduce_scatter: bool = True
    round_robin_gradients: bool = False
    gradient_clipping: float = 1.0
    hpz_partition_size: int = 1

    @property
    def overlaps(self) -> bool:
        return self.stage == 3 if self.overlap_comm is None else self.overlap_comm

    @property
    def element_bytes(self) -> int:
        """Bytes of a parameter as trained: fp8 runs inside matmuls, its weights stay 16-bit."""
        return 4 if self.precision == "fp32" else 2

    @property
    def dtype(self) -> str:
        return {"fp32": "float32", "fp16": "float16"}.get(self.precision, "bfloat16")

    def shards(self, from_stage: int, ranks: int) -> int:
        """Over how many ranks a state is split that is sharded from `from_stage` on."""
        return ranks if self.stage >= from_stage else 1


class Workload(NamedTuple):
    """What the user asks for, whatever the strategy."""

    seq: int = 2048
    global_batch: int | None = None
