"""Where in a step each of the ledger's collectives runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zeroplan.costs.deepspeed.traffic import (
    BACKWARD,
    FORWARD,
    MICRO_STEP,
    gathered_for_modules,
    gathered_in_passes,
)
from zeroplan.formulas import volume
from zeroplan.ledger import Transfer
from zeroplan.specs.job import Job

UPDATE = "after the step"
EVERY, FIRST, LATER, LAST = "every micro-step", "the first", "each later one", "the last"


class PhaseTransfer(NamedTuple):
    """All calls of one kind in one phase: of every micro-step, or of some alone."""

    phase: str
    transfer: Transfer
    micro_steps: str = EVERY
    gathers: bool = False
    """For modules, at stage 3."""


def phases(job: Job, traffic: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
    """Gathers of stage 3 run in the pass that issues them, reductions in backward, the rest after the step.

    Those of stage 1 come in the last micro-step's backward. What says its pass, as another engine's may, runs there.
    """
    gathers = gathered_for_modules(job) if job.strategy.stage == 3 and job.ranks > 1 else []
    for entry in traffic:
        if entry.when in (FORWARD, BACKWARD):
            yield PhaseTransfer(entry.when, entry)
        elif entry in gathers:
            if entry == gathers[0]:
                yield from _gathered(job)
        elif entry.when == MICRO_STEP:
            yield PhaseTransfer(BACKWARD, entry)
        elif _in_last_backward(job, entry):
            yield PhaseTransfer(BACKWARD, entry, LAST)
        else:
            yield PhaseTransfer(UPDATE, entry)


def grouped_micro_steps(job: Job, sent: Sequence[PhaseTransfer]) -> Iterator[tuple[str, list[PhaseTransfer], int]]:
    """Group what one phase sends: micro-steps that send the same, what that is, and how many they are."""
    left, every = job.strategy.micro_steps, [entry for entry in sent if entry.micro_steps == EVERY]
    for name, times in ((FIRST, 1), (LATER, left - 1), (LAST, 1)):
        if alone := [entry for entry in sent if entry.micro_steps == name]:
            yield name, every + alone, times
            left -= times
    if left:
        yield EVERY, every, left


def _gathered(job: Job) -> Iterator[PhaseTransfer]:
    found = gathered_in_passes(job)
    for name, transfers in zip((FIRST, LATER) if len(found) > 1 else (EVERY,), found, strict=True):
        for transfer in transfers:
            yield PhaseTransfer(transfer.when, transfer, name, gathers=True)


def _in_last_backward(job: Job, entry: Transfer) -> bool:
    """Stage 1's buckets; what the engine reduces by itself, at stage 0 and for BF16_Optimizer, comes after it."""
    by_engine = not job.strategy.stage or job.strategy.runs_bf16_optimizer
    return "reduce" in entry.collective and entry.rule is volume.replayed and not by_engine
