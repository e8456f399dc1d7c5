"""Phases and micro-steps in which DeepSpeed 0.19.8 issues its collectives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zeroplan.costs.deepspeed.events import Gather, MicroStep
from zeroplan.costs.deepspeed.fetch import distinct, micro_steps
from zeroplan.costs.deepspeed.traffic import MICRO_STEP, by_kind, cached_per_gathers, calls_of, gathered_for_modules
from zeroplan.costs.engine import BACKWARD, EVERY, FIRST, FORWARD, LAST, LATER, UPDATE, PhaseTransfer
from zeroplan.formulas import volume
from zeroplan.ledger import Transfer
from zeroplan.specs.job import Job


def in_phases(job: Job, traffic: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
    """Gathers of stage 3 run in the pass that issues them, reductions in backward, the rest after the step.

    Those of stage 1 come in the last micro-step's backward.
    """
    gathers = gathered_for_modules(job) if job.strategy.stage == 3 and job.ranks > 1 else []
    for entry in traffic:
        if entry in gathers:
            if entry == gathers[0]:
                yield from _gathers_in_phases(job)
        elif entry.when == MICRO_STEP:
            yield PhaseTransfer(BACKWARD, entry)
        elif _in_last_backward(job, entry):
            yield PhaseTransfer(BACKWARD, entry, LAST)
        else:
            yield PhaseTransfer(UPDATE, entry)


def _gathers_in_phases(job: Job) -> Iterator[PhaseTransfer]:
    each = gathered_in_passes(job)
    for name, transfers in zip((FIRST, LATER) if len(each) > 1 else (EVERY,), each, strict=True):
        for transfer in transfers:
            yield PhaseTransfer(transfer.when, transfer, name, gathers=True)


def _in_last_backward(job: Job, entry: Transfer) -> bool:
    """Stage 1's buckets; what the engine reduces by itself, at stage 0 and for BF16_Optimizer, comes after it."""
    by_engine = not job.strategy.stage or job.strategy.runs_bf16_optimizer
    return "reduce" in entry.collective and entry.rule is volume.replayed and not by_engine


@cached_per_gathers
def gathered_in_passes(job: Job) -> tuple[list[Transfer], ...]:
    """Stage 3's, by the pass that issues them: of a step's first micro-step, and of a later one where that differs."""
    return tuple(
        [
            transfer
            for pass_index, name in enumerate((FORWARD, BACKWARD))
            for transfer in by_kind(job, name, calls_of(job, _of_pass(each, pass_index)))
        ]
        for each in distinct(micro_steps(job))
    )


def _of_pass(micro_step: MicroStep, pass_index: int) -> list[Gather]:
    """0: forward, 1: backward."""
    return [gather for gather in micro_step.calls if gather.pass_index == pass_index]
