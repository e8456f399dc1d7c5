"""Stage 0: everything whole on each rank (DeepSpeed 0.19.8).

16-bit training runs in FP16_Optimizer when the basic optimizer is DeepSpeed's fused Adam, which flattens each
group, else in FP16_UnfusedOptimizer, which keeps tensors apart; fp32 runs the basic optimizer alone.
"""

from __future__ import annotations

from zeroplan.costs.activations import Activations
from zeroplan.costs.deepspeed.held import model_buffers, numbers, runs_fused, state_bytes, state_dtype
from zeroplan.formulas import buffers, states
from zeroplan.ledger import Line, Moment, Tier, line
from zeroplan.specs.job import Job


def gpu(job: Job, activations: Activations) -> Tier:
    """Gradients live from backward to the step only; 16-bit training copies them to fp32 there."""
    psi, strategy = job.model.parameters, job.strategy
    w, half = strategy.element_bytes, strategy.element_bytes == 2
    parameters = line("parameters", states.whole_parameters, strategy.dtype, psi=psi, w=w)
    held = [parameters, *_optimizer(job), *model_buffers(job), *numbers(job, {})]
    gradients = line("gradients", buffers.whole_gradients, strategy.dtype, psi=psi, g=w)
    accumulated = [gradients] if strategy.grad_accum > 1 else []
    second = line("model beside its flat copy", buffers.second_copy, strategy.dtype, psi=psi, w=w)
    flattens = half and runs_fused(job)
    step: list[Line] = [gradients]
    if half:
        step.append(line("fp32 gradients", buffers.fp32_gradient_copy, "float32", flat=psi, n_d=1))
    if flattens:
        step.append(line("fp32 gradients, flattened", buffers.fp32_gradient_copy, "float32", flat=psi, n_d=1))
    return Tier(
        tuple(held),
        (
            Moment("init", "states are made", tuple(held)),
            Moment("init", "the model is flattened", (parameters, *([second] if flattens else []))),
            Moment("forward", "loss", (*held, *accumulated, *activations.forward)),
            Moment("backward", "loss", (*held, *accumulated, *activations.loss_backward)),
            Moment("backward", "first layer", (*held, gradients, *activations.layer_backward)),
            Moment("step", "optimizer", (*held, *step)),
        ),
    )


def _optimizer(job: Job) -> list[Line]:
    psi, lines = job.model.parameters, []
    if job.strategy.element_bytes == 2:
        lines.append(line("fp32 master copy", states.whole_master, "float32", psi=psi))
    if size := state_bytes(job):
        lines.append(line("optimizer states", states.whole_states, state_dtype(job), psi=psi, m=size))
    return lines
