"""What DeepSpeed 0.19.8 moves: collectives per micro-step and per step, without settings that reshape them."""

from __future__ import annotations

from zeroplan.costs.deepspeed.stage_3 import persistent_elements
from zeroplan.costs.partition import flat_elements, persistent_tensors, reduce_calls
from zeroplan.formulas import volume
from zeroplan.ledger import Rule, Transfer
from zeroplan.specs.job import Job

ENGINE_RUN = 500_000_000
"""Elements after which the engine closes a run of gradients at stage 0 (runtime/engine.py)."""


def traffic(job: Job) -> tuple[Transfer, ...]:
    """Buckets are all-reduced at stages 1 and 2, so their volume is 3Ψ on a ring where the paper says 2Ψ."""
    if job.ranks == 1:
        return ()
    return {0: _stage_0, 1: _stages_1_2, 2: _stages_1_2, 3: _stage_3}[job.strategy.stage](job)


def _transfer(job: Job, when: str, collective: str, calls: int, rule: Rule, **symbols: int) -> Transfer:
    return Transfer(when, collective, job.strategy.dtype, calls, rule(**symbols), job.ranks, "dp", rule, symbols)


def _stage_0(job: Job) -> tuple[Transfer, ...]:
    calls = reduce_calls(job.model.tensors, ENGINE_RUN)
    psi, g = job.model.parameters, job.strategy.element_bytes
    return (_transfer(job, "step", "all_reduce", calls, volume.reduce_gradients, psi=psi, g=g),)


def _stages_1_2(job: Job) -> tuple[Transfer, ...]:
    w, psi = job.strategy.element_bytes, job.model.parameters
    calls = reduce_calls(job.model.tensors, job.strategy.reduce_bucket_size)
    when = "micro_step" if job.strategy.stage == 2 else "step"
    return (
        _transfer(job, when, "all_reduce", calls, volume.reduce_gradients, psi=psi, g=w),
        _transfer(job, "step", "all_gather", 1, volume.gather_flat, flat=flat_elements(job), w=w),
    )


def _stage_3(job: Job) -> tuple[Transfer, ...]:
    w, psi, strategy = job.strategy.element_bytes, job.model.parameters, job.strategy
    gathered = psi - sum(tensor.elements for tensor in persistent_tensors(job))
    tensors = len(job.model.tensors) - len(persistent_tensors(job))
    once = gathered <= min(strategy.max_reuse_distance, strategy.max_live_parameters)
    passes = ["forward"] if once else ["forward", "backward"]
    gathers = [
        _transfer(job, "micro_step", "all_gather", tensors, volume.gather_parameters, psi=gathered, w=w)
        for _pass in passes
    ]
    calls = reduce_calls(job.model.tensors, strategy.reduce_bucket_size)
    persistent = persistent_elements(job)
    again = [
        _transfer(job, "step", "all_gather", len(persistent_tensors(job)), volume.gather_persistent,
                  persistent=persistent, w=w)
    ] if persistent else []  # fmt: skip
    return (
        *gathers,
        _transfer(job, "micro_step", "reduce_scatter", calls, volume.reduce_gradients, psi=psi, g=w),
        *again,
    )
