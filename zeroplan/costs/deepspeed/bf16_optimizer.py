"""BF16_Optimizer, which runs at stage 1 in bf16 with fp32 accumulation: fp32 gradients whole on each rank.

DeepSpeed 0.19.8 runtime/bf16_optimizer.py: after backward each gradient is added to its fp32 one, and the engine
reduces those as at stage 0; the bf16 gradients stay until the step. With immediate_grad_update a gradient is added and
freed as it is born (accumulate_hp_grads_and_remove_lp, line 707).
"""

from __future__ import annotations

from zeroplan.costs.allocations import END, START, AllocationTracker, PassProfile
from zeroplan.costs.deepspeed import muon_update
from zeroplan.costs.deepspeed.layout import flat_groups, tensor_sizes
from zeroplan.costs.deepspeed.optimizer_states import temporaries
from zeroplan.costs.deepspeed.stage_0 import make_gradients, reduce_by_engine
from zeroplan.costs.memory import PhaseMemory
from zeroplan.formulas import transient
from zeroplan.ledger import Line
from zeroplan.specs.job import Job


def phase_memory(job: Job) -> PhaseMemory:
    """Beside the residents, which include the fp32 gradients."""
    groups, tracker = flat_groups(job), AllocationTracker()
    if job.strategy.immediate_grad_update:
        gradients = _added_at_once(job, tracker)
    else:
        gradients = make_gradients(job, tracker, "bfloat16")
        tracker.transient_peak((transient.gradient_in_fp32, "float32", job.model.largest_trainable.elements))
    reduce_by_engine(job, tracker, [layout.flat for layout in groups], "float32")
    tracker.mark(END)
    backward, together = tracker.peak_lines(), PassProfile(tracker)
    tracker.reset_peak()
    muon_update.prepare(job, tracker)
    share = max((layout.partition for layout in groups if not layout.muon), default=0)
    tracker.transient_peak((transient.optimizer_temporaries, "float32", temporaries(job, [share])))
    accumulated = gradients if job.strategy.grad_accum > 1 else ()
    return PhaseMemory(accumulated, accumulated, backward, tracker.peak_lines(), backward_pass=together)


def _added_at_once(job: Job, tracker: AllocationTracker) -> tuple[Line, ...]:
    """Gradients that stay: none."""
    sizes = tensor_sizes(job)
    tracker.mark(START)
    for index in job.execution.gradients:
        with tracker.transient((transient.gradients, "bfloat16", sizes[index])):
            tracker.transient_peak((transient.gradient_in_fp32, "float32", sizes[index]))
        tracker.mark(~index)
    return ()
