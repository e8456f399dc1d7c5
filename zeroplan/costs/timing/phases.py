"""Where in a step each of the ledger's collectives runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.formulas import volume
from zeroplan.ledger import Transfer
from zeroplan.specs.job import Job

FORWARD, BACKWARD, UPDATE = "forward", "backward", "after the step"
MICRO_STEP = "micro_step"
WHEN = (MICRO_STEP, "step")


class Sent(NamedTuple):
    """Calls of one collective in one phase: of every micro-step, or of the last alone."""

    phase: str
    transfer: Transfer
    calls: float
    last: bool = False
    gathers: bool = False
    """For modules, at stage 3."""


def phases(job: Job, traffic: Iterable[Transfer]) -> Iterator[Sent]:
    """Gathers of stage 3 fall into forward and backward, reductions into backward, the rest after the step.

    Those of stage 1 come in the last micro-step's backward.
    """
    traffic = tuple(traffic)
    gathered = {when: sum(e.symbols["moved"] for e in traffic if e.when == when and _gathers(job, e)) for when in WHEN}
    for entry in traffic:
        if _gathers(job, entry):
            yield from _split(job, entry, gathered[entry.when])
        elif entry.when == MICRO_STEP:
            yield Sent(BACKWARD, entry, entry.calls)
        elif _in_last_backward(job, entry):
            yield Sent(BACKWARD, entry, entry.calls, last=True)
        else:
            yield Sent(UPDATE, entry, entry.calls)


def _in_last_backward(job: Job, entry: Transfer) -> bool:
    """Stage 1's buckets; what the engine reduces by itself, at stage 0 and for BF16_Optimizer, comes after it."""
    by_engine = not job.strategy.stage or job.strategy.runs_bf16_optimizer
    return "reduce" in entry.collective and entry.rule is volume.replayed and not by_engine


def _gathers(job: Job, entry: Transfer) -> bool:
    """Whether these are stage 3's gathers for modules: every micro-step's, or with secondary partitions the step's."""
    joined = entry.collective == "all_reduce" and job.strategy.all_reduce_for_fetch
    gathers = entry.collective == "all_gather" or joined
    secondary = job.strategy.hpz_partition_size > 1 and entry.bytes > job.model.parameters
    return job.strategy.stage == 3 and gathers and entry.rule is volume.replayed and (
        entry.when == MICRO_STEP or secondary
    )  # fmt: skip


def _split(job: Job, entry: Transfer, gathered: int) -> Iterator[Sent]:
    """All parameters once in forward, what is beyond that in backward; of the step's an even share each micro-step.

    `gathered`: elements of all gathers that come with this one, in whatever dtype.
    """
    times = 1 if entry.when == MICRO_STEP else job.strategy.micro_steps
    calls = entry.calls / times
    first = min(1.0, times * job.model.parameters / max(gathered, 1))
    yield Sent(FORWARD, entry, first * calls, gathers=True)
    if first < 1:
        yield Sent(BACKWARD, entry, (1 - first) * calls, gathers=True)
