"""Floating-point operations of one micro-batch on one GPU, from the same trace as its bytes."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.passes import timeline_request
from zeroplan.specs.account import Flops
from zeroplan.specs.job import Job


class Operations(NamedTuple):
    """FLOPs of matrix products, attention's included; norms, activations and the optimizer do next to nothing."""

    flops: Flops
    """As torch's FlopCounterMode counts: attention over all pairs of tokens."""
    causal: Flops
    """As a causal kernel runs it, over a token and those before; eager attention multiplies all pairs all the same."""


def operations(job: Job) -> Operations | None:
    """None where there is no timeline, and under Liger's kernels, whose products are not counted."""
    flops, causal = (job.model.profile.flops(timeline_request(job), causal=causal) for causal in (False, True))
    return Operations(flops, causal) if flops and causal else None
