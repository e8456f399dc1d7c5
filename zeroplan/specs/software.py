"""The code that runs a step, as far as its speed depends on more than the operators it must run."""

from typing import NamedTuple

from zeroplan.specs.cluster import SourcedValue

FITTED = "fit over published training throughput; benchmarks/published_throughput.py prints what it leaves over"
DATE = "2026-11-22"


def fitted(value: float) -> SourcedValue:
    """A constant fitted to published runs."""
    return SourcedValue(value, FITTED, DATE, "published")


def judged(value: float, why: str) -> SourcedValue:
    """A constant set by hand."""
    return SourcedValue(value, f"judgement: {why}", DATE, "assumed")


class Software(NamedTuple):
    name: str
    passes: SourcedValue
    """Over memory by element-wise operators, norms among them, in those of kernels fused by hand."""
    exposed_share: SourcedValue
    """Share of the shorter of work and traffic that still shows while both run."""
    exposed_share_at_stage_3: SourcedValue
    logit_bytes: SourcedValue
    """Read and written for one logit, forward and backward, by the loss."""
    in_order: bool = True
    """Its collectives come in DeepSpeed's order; else as if spread evenly over the work."""
    hook: SourcedValue | None = None
    """Seconds of the CPU for one module that a pass of stage 3 goes through: DeepSpeed's hooks before and after it, and
    starting its kernels. None where there are no hooks.
    """
    visit: SourcedValue | None = None
    """Seconds of the CPU to start what a step's update runs for one tensor. None where all are updated at once."""


HOOK = SourcedValue(
    0.5e-3, "fit over four published ZeRO-3 runs that wait for the CPU (bf16mwT, makramabT), 0.50 to 0.57 ms; without "
    "a card's streams, events and NCCL 0.25 to 0.54 ms on one core of an AMD EPYC, measured", "2026-11-23", "published",
)  # fmt: skip
"""Seconds of one module's hooks in a pass."""


VISIT = SourcedValue(
    0.25e-3, "measured on one H100 beside a virtual Xeon: 0.19 to 0.36 ms over steps of ten models at stages 0 to 3 "
    "(tests/references/gpu/h100_steps.json)", "2026-11-27", "measured",
)  # fmt: skip


TRANSFORMERS = Software(
    "transformers under DeepSpeed",
    passes=judged(2.0, "operators of transformers' norms, rotary positions and MLP run one by one"),
    exposed_share=fitted(0.15), exposed_share_at_stage_3=fitted(0.5), logit_bytes=fitted(24.0),
    hook=HOOK, visit=VISIT,
)  # fmt: skip
LIGER_LOSS = TRANSFORMERS._replace(
    name="Liger's loss under DeepSpeed",
    logit_bytes=judged(8.0, "logits of one chunk at a time, read and written once each way"),
)
LIGER = LIGER_LOSS._replace(
    name="Liger's kernels under DeepSpeed",
    passes=judged(1.0, "norms, rotary positions and the MLP's activation each run as one kernel"),
)
