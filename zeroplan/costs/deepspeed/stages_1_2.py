"""Stages 1 and 2: flat parameters whole, master copy and optimizer states partitioned (DeepSpeed 0.19.8)."""

from __future__ import annotations

from zeroplan.costs.allocations import PassProfile
from zeroplan.costs.cache import cached, gradients, order_free_key
from zeroplan.costs.deepspeed import gather_buffers, muon_offload, step_counters, zenflow
from zeroplan.costs.deepspeed.layout import flat_groups
from zeroplan.costs.deepspeed.muon_update import gradient_dtype, own_elements
from zeroplan.costs.deepspeed.resident import (
    built_states,
    frozen_parameters,
    master_name,
    model_buffers,
    numbers,
    state_bytes,
    state_dtype,
)
from zeroplan.costs.deepspeed.stages_1_2_backward import Stages12Backward
from zeroplan.costs.deepspeed.stages_1_2_step import update
from zeroplan.costs.memory import PhaseMemory
from zeroplan.formulas import muon, states
from zeroplan.ledger import DTYPE_BYTES, Line, line
from zeroplan.specs.job import Job


def resident(job: Job) -> list[Line]:
    """Between steps."""
    strategy, w = job.strategy, job.strategy.element_bytes
    flat = sum(layout.flat for layout in flat_groups(job))
    lines = [line("parameters", states.flat_parameters, strategy.dtype, flat=flat, w=w)]
    lines += frozen_parameters(job)
    if strategy.offload_optimizer:
        largest = job.model.largest_trainable.elements
        lines.append(line("offload scratch", states.offload_scratch, strategy.dtype, largest=largest, g=w))
        lines += gather_buffers.lines(muon_offload.kept(job))
        lines += zenflow.resident(job)
    else:
        lines += _optimizer(job, flat)
    if strategy.runs_bf16_optimizer:
        lines.append(line("fp32 gradients", states.whole_gradients, "float32", psi=flat, g=4))
    norms = {"float32": int(strategy.compute_grad_norm and not strategy.offload_optimizer)}
    return [*lines, *built_states(job), *model_buffers(job), *numbers(job, norms), *step_counters.on_gpu(job)]


@cached(order_free_key, order=gradients)
def phase_memory(job: Job) -> PhaseMemory:
    """The micro-steps and the step, from the replay: the first, one between, and the last, which the step follows."""
    if job.strategy.runs_bf16_optimizer:
        from zeroplan.costs.deepspeed import bf16_optimizer

        return bf16_optimizer.phase_memory(job)
    if job.strategy.selective:
        from zeroplan.costs.deepspeed import zenflow_backward

        return zenflow_backward.phase_memory(job, job.strategy.selective)
    reducing = Stages12Backward(job)
    tracker, accumulated = reducing.tracker, reducing.tracker.lines()
    for _micro in range(min(job.strategy.grad_accum, 3) - 1):
        reducing.micro_step(boundary=False)
        accumulated = tracker.lines()
    reducing.micro_step(boundary=True)
    backward, together = tracker.peak_lines(), PassProfile(tracker)
    tracker.reset_peak()
    if job.strategy.offload_optimizer:
        muon_offload.apply(job, tracker)
    else:
        update(reducing)
    come_and_go = (gather_buffers.GATHER_BUFFERS,)
    return PhaseMemory(
        accumulated, accumulated, backward, tracker.peak_lines(), come_and_go,
        backward_pass=together,
    )  # fmt: skip


def _optimizer(job: Job, flat: int) -> list[Line]:
    master = job.strategy.master
    lines = [line(master_name(job), states.flat_master, master, flat=flat, n_d=job.ranks, master=DTYPE_BYTES[master])]
    matrices = sum(layout.flat for layout in flat_groups(job) if layout.muon)
    if size := state_bytes(job, state_dtype(job)):
        of_adam = flat - matrices
        lines.append(
            line("optimizer states", states.flat_states, state_dtype(job), flat=of_adam, m=size, n_d=job.ranks)
        )
    return [*lines, *_momentum(job, matrices)] if matrices else lines


def _momentum(job: Job, flat: int) -> list[Line]:
    """Muon's, partitioned like the master weights in BF16_Optimizer; elsewhere of whole matrices, and twice."""
    if job.strategy.runs_bf16_optimizer:
        return [line("Muon's momentum", states.flat_states, "float32", flat=flat, m=4, n_d=job.ranks)]
    own, dtype = own_elements(job), gradient_dtype(job)
    symbols = {"own": own, "g": DTYPE_BYTES[dtype]}
    momentum = line("Muon's momentum", muon.momentum, dtype, **symbols)
    return [momentum, line("staged momentum", muon.staged_momentum, dtype, **symbols)] if own else []
