"""The code that runs a step, as far as its speed depends on more than the operators it must run."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.specs.cluster import Figure

FITTED = "fit over published training throughput; benchmarks/published_throughput.py prints what it leaves over"
DATE = "2026-11-22"


def fitted(value: float) -> Figure:
    """A constant fitted to published runs."""
    return Figure(value, FITTED, DATE, "published")


def judged(value: float, why: str) -> Figure:
    """A constant set by hand."""
    return Figure(value, f"judgement: {why}", DATE, "assumed")


class Software(NamedTuple):
    name: str
    passes: Figure
    """Over memory by element-wise operators, norms among them, in those of kernels fused by hand."""
    shown: Figure
    """Share of the shorter of work and traffic that still shows while both run."""
    shown_at_stage_3: Figure
    logit_bytes: Figure
    """Read and written for one logit, forward and backward, by the loss."""
    in_order: bool = True
    """Its collectives come in DeepSpeed's order; else as if spread evenly over the work."""


TRANSFORMERS = Software(
    "transformers under DeepSpeed",
    passes=judged(2.0, "operators of transformers' norms, rotary positions and MLP run one by one"),
    shown=fitted(0.15), shown_at_stage_3=fitted(0.5), logit_bytes=fitted(24.0),
)  # fmt: skip
LIGER_LOSS = TRANSFORMERS._replace(
    name="Liger's loss under DeepSpeed",
    logit_bytes=judged(8.0, "logits of one chunk at a time, read and written once each way"),
)
LIGER = LIGER_LOSS._replace(
    name="Liger's kernels under DeepSpeed",
    passes=judged(1.0, "norms, rotary positions and the MLP's activation each run as one kernel"),
)
