"""Stage 0: everything whole on each rank (DeepSpeed 0.19.8).

16-bit training runs in FP16_Optimizer when the basic optimizer is DeepSpeed's fused Adam, which flattens each
group, else in FP16_UnfusedOptimizer, which keeps tensors apart; fp32 runs the basic optimizer alone.
"""

from __future__ import annotations

from zeroplan.costs.allocations import END, START, AllocationTracker, PassProfile
from zeroplan.costs.cache import cached, gradients, order_free_key
from zeroplan.costs.deepspeed import optimizer_states
from zeroplan.costs.deepspeed.initialize import flattens, group_tensors, update_matrices
from zeroplan.costs.deepspeed.layout import tensor_sizes, trainable_sizes
from zeroplan.costs.deepspeed.muon import adam_elements
from zeroplan.costs.deepspeed.optimizer_states import (
    built_states,
    frozen_parameters,
    model_buffers,
    numbers,
    state_bytes,
    state_dtype,
    temporaries,
)
from zeroplan.costs.deepspeed.reduction import engine_runs
from zeroplan.costs.memory import PhaseMemory
from zeroplan.formulas import states, transient
from zeroplan.ledger import Line, line
from zeroplan.specs.job import Job


def resident(job: Job) -> list[Line]:
    """Between steps. Gradients live from backward to the step only; 16-bit training copies them to fp32 there."""
    psi, w = job.model.trainable_parameters, job.strategy.element_bytes
    parameters = line("parameters", states.whole_parameters, job.strategy.dtype, psi=psi, w=w)
    single = [*numbers(job, {}), *optimizer_states.on_gpu(job)]
    return [parameters, *frozen_parameters(job), *_optimizer(job), *built_states(job), *model_buffers(job), *single]


def _optimizer(job: Job) -> list[Line]:
    psi, lines = job.model.trainable_parameters, []
    if job.strategy.element_bytes == 2:
        lines.append(line("fp32 master copy", states.whole_master, "float32", psi=psi))
    of_adam = adam_elements(job)
    if size := state_bytes(job):
        lines.append(line("optimizer states", states.whole_states, state_dtype(job), psi=of_adam, m=size))
    if psi > of_adam:
        from zeroplan.formulas import muon

        lines.append(line("Muon's momentum", muon.whole_momentum, state_dtype(job), psi=psi - of_adam, m=4))
    return lines


@cached(order_free_key, order=gradients)
def phase_memory(job: Job) -> PhaseMemory:
    strategy, tracker = job.strategy, AllocationTracker()
    gradients = make_gradients(job, tracker, strategy.dtype)
    reduce_by_engine(job, tracker, trainable_sizes(job), strategy.dtype)
    tracker.mark(END)
    backward, together = tracker.peak_lines(), PassProfile(tracker)
    tracker.reset_peak()
    (_step_flat if flattens(job) else _step_apart)(job, tracker)
    accumulated = gradients if strategy.grad_accum > 1 else ()
    return PhaseMemory(accumulated, accumulated, backward, tracker.peak_lines(), backward_pass=together)


def make_gradients(job: Job, tracker: AllocationTracker, dtype: str) -> tuple[Line, ...]:
    """Gradients one after the other as backward makes them, or all there from earlier micro-steps; and zeros for
    tensors that no gradient reaches (runtime/engine.py:_get_gradients_for_reduction).
    """
    sizes, order = tensor_sizes(job), job.execution.gradients
    accumulates, reached = job.strategy.grad_accum > 1, sum(sizes[index] for index in order)
    tracker.allocate(transient.gradients, dtype, reached if accumulates else 0)
    tracker.mark(START)
    for index in order:
        if not accumulates:
            tracker.allocate(transient.gradients, dtype, sizes[index])
        tracker.mark(~index)
    tracker.allocate(transient.gradients, dtype, job.model.trainable_parameters - reached)
    return tracker.lines()


def reduce_by_engine(job: Job, tracker: AllocationTracker, sizes: list[int], dtype: str) -> None:
    """Runs of gradients are joined, and copied once more where communication has another dtype."""
    sent = job.strategy.communication
    for run in engine_runs(sizes):
        elements = sum(part.elements for part in run)
        joined = [(transient.joined_gradients, dtype, elements)] if len(run) > 1 else []
        if sent != dtype:
            joined.append((transient.copy_in_communication_dtype, sent, elements))
        tracker.transient_peak(*joined)


def _step_flat(job: Job, tracker: AllocationTracker) -> None:
    """FP16_Optimizer: group by group each gradient is converted, then all are joined; the 16-bit ones go. A lone one
    is joined with nothing, and not copied.
    """
    for tensors in group_tensors(job):
        elements = sum(tensors)
        with tracker.transient((transient.converted_gradients, "float32", elements if len(tensors) > 1 else 0)):
            tracker.allocate(transient.fp32_gradients, "float32", elements)
        tracker.free(transient.gradients, job.strategy.dtype, elements)
    tracker.free(transient.fp32_gradients, "float32", job.model.trainable_parameters)


def _step_apart(job: Job, tracker: AllocationTracker) -> None:
    """FP16_UnfusedOptimizer converts every gradient and keeps the 16-bit ones; fp32 reads them as they are."""
    converted = job.model.trainable_parameters if job.strategy.element_bytes == 2 else 0
    copies = max((temporaries(job, tensors) for tensors in group_tensors(job)), default=0)
    with tracker.transient((transient.fp32_gradients, "float32", converted)):
        last = update_matrices(job, tracker, makes_states=False)
        tracker.transient_peak(*last, (transient.optimizer_temporaries, "float32", copies))
