"""ZenFlow: the columns of each matrix whose gradients are largest are updated at once, the rest later on the host."""

from __future__ import annotations

from typing import NamedTuple


class ZenFlow(NamedTuple):
    """zero_optimization.zenflow; defaults are DeepSpeed 0.19.8's (runtime/zenflow/zenflow_config.py)."""

    update_interval: int
    """Micro-steps from one update on the host to the next: they take gradient accumulation's place."""
    topk_ratio: float = 0.1
    """Share of columns that are updated at once."""
    select_interval: int = 0
    """Micro-steps from one choice of columns to the next; 0 for epochs, which are longer than any step."""
    offload: bool = False
    """The chosen columns' moments lie on the host between updates."""

    overlap_step: bool = False
    """The host's update runs in a process of its own, beside the next micro-steps."""

    @property
    def chooses_in_every_step(self) -> bool:
        return self.select_interval == self.update_interval
