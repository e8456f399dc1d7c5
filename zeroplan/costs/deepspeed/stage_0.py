"""Stage 0: everything whole on each rank (DeepSpeed 0.19.8, FP16_Optimizer with FusedAdam, or plain fp32)."""

from __future__ import annotations

from zeroplan.costs.activations import Activations
from zeroplan.formulas import buffers, states
from zeroplan.ledger import Moment, Tier, line
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OPTIMIZERS, master_bytes


def gpu(job: Job, activations: Activations) -> Tier:
    """Gradients live from backward to the step only; 16-bit training flattens and copies them to fp32 there."""
    psi, w, strategy = job.model.parameters, job.strategy.element_bytes, job.strategy
    half = master_bytes(strategy.precision) > 0
    parameters = line("parameters", states.whole_parameters, psi=psi, w=w)
    held = [parameters]
    if half:
        held.append(line("fp32 master copy", states.whole_master, psi=psi))
    if OPTIMIZERS[strategy.optimizer].state_bytes:
        state_bytes = OPTIMIZERS[strategy.optimizer].state_bytes
        held.append(line("optimizer states", states.whole_states, psi=psi, m=state_bytes))
    gradients = line("gradients", buffers.whole_gradients, psi=psi, g=w)
    accumulated = [gradients] if strategy.grad_accum > 1 else []
    init = [parameters, line("model beside its flat copy", buffers.second_copy, psi=psi, w=w)]
    step = [gradients]
    if half:
        step.append(line("fp32 gradients", buffers.fp32_gradient_copy, flat=psi, n_d=1))
    return Tier(
        tuple(held),
        (
            Moment("init", "the model is flattened", tuple(init if half else held[:1])),
            Moment("forward", "loss", (*held, *accumulated, *activations.forward)),
            Moment("backward", "loss", (*held, *accumulated, *activations.loss_backward)),
            Moment("backward", "first layer", (*held, gradients, *activations.layer_backward)),
            Moment("step", "optimizer", (*held, *step)),
        ),
    )
