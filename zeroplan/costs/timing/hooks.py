"""What stage 3's hooks make a pass wait: DeepSpeed runs them around each module, in Python.

The thread that runs them starts the kernels, and runs ahead of the card as far as it can, also while the card waits for
a collective. So a pass takes as long as its hooks, or as its work and the traffic that shows, whichever is more.
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.clock import COMPUTE, term
from zeroplan.costs.engines import engine_of
from zeroplan.costs.timing.computing import ComputePass, Computing
from zeroplan.formulas import timing
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.software import Software


class Hooks(NamedTuple):
    """Seconds of the CPU for one micro-step; 0 below stage 3."""

    forward: float = 0.0
    backward: float = 0.0
    """With what checkpointing runs again."""


def hooks(job: Job, software: Software) -> Hooks:
    """Each module is a hook that enters it and one that leaves it."""
    if not engine_of(job).hooked(job) or software.hook is None:
        return Hooks()
    passes = job.execution.forward, job.backward_hooks
    return Hooks(*(timing.hooks(len(hooks) / 2, software.hook.value) for hooks in passes))


def waited(
    job: Job, software: Software, computing: Computing, forward: float = 0.0, backward: float = 0.0
) -> Computing:
    """The passes of a micro-step, each with what it waits for its hooks: beyond its work and the traffic that shows, of
    which there are so many seconds in a step's forwards, and in its backwards.
    """
    of_forward, of_backward = hooks(job, software)
    times = job.strategy.micro_steps
    return Computing(
        _waited("forward", computing.forward, software.hook, of_forward, forward / times),
        _waited("backward", computing.backward, software.hook, of_backward, backward / times),
    )


def _waited(
    way: str, compute_pass: ComputePass, hook: SourcedValue | None, host: float, exposed_communication: float
) -> ComputePass:
    seconds = host - compute_pass.seconds - exposed_communication
    if hook is None or seconds <= 0:
        return compute_pass
    one = term(
        COMPUTE, f"waiting for stage 3's hooks, {way}", timing.hooks, hook, modules=host / hook.value, hook=hook.value
    )
    return ComputePass((*compute_pass.terms, one._replace(seconds=seconds, times=seconds / one.seconds)))
