"""Stages 1 and 2: flat parameters whole, master copy and optimizer states partitioned (DeepSpeed 0.19.8)."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.activations import Activations
from zeroplan.costs.partition import flat_elements, own_elements
from zeroplan.formulas import buffers, states
from zeroplan.ledger import Line, Moment, Tier, line
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OPTIMIZERS


class Gradients(NamedTuple):
    """Gradients on the GPU between micro-steps, at the end of backward, and at the step."""

    accumulated: tuple[Line, ...]
    at_end: tuple[Line, ...]
    for_step: tuple[Line, ...]


def gradients(job: Job) -> Gradients:
    """Stage 1 keeps all of them until the boundary; stage 2 those of whole tensors that touch its partition."""
    strategy, w = job.strategy, job.strategy.element_bytes
    bucket = line(
        "reduce bucket", buffers.reduce_bucket,
        bucket=strategy.reduce_bucket_size, w=w, copies=2 if strategy.overlaps else 1,
    )  # fmt: skip
    own = line("own gradients", buffers.own_gradients, own=own_elements(job), g=w)
    every = line("gradients", buffers.whole_gradients, psi=job.model.parameters, g=w)
    more_than_one = strategy.grad_accum > 1
    if strategy.stage == 1 and (more_than_one or not strategy.overlaps):
        return Gradients((every, bucket) if more_than_one else (), (every, bucket), (own,))
    large = line("largest gradient", buffers.largest_gradient, largest=job.model.largest.elements, g=w)
    if strategy.offload_optimizer:
        return Gradients((), (bucket, large), ())
    return Gradients((own,) if more_than_one else (), (own, bucket, large), (own,))


def gpu(job: Job, activations: Activations) -> Tier:
    strategy, w, flat = job.strategy, job.strategy.element_bytes, flat_elements(job)
    state_bytes = OPTIMIZERS[strategy.optimizer].state_bytes
    parameters = line("parameters", states.flat_parameters, flat=flat, w=w)
    held, step = [parameters], []
    if strategy.offload_optimizer:
        largest = job.model.largest.elements
        held.append(line("offload scratch", buffers.offload_scratch, largest=largest, g=w))
    else:
        held.append(line("fp32 master copy", states.flat_master, flat=flat, n_d=job.ranks))
        if state_bytes:
            held.append(line("optimizer states", states.flat_states, flat=flat, m=state_bytes, n_d=job.ranks))
        step = [
            line("flattened gradients", buffers.flat_gradient_copy, flat=flat, g=w, n_d=job.ranks),
            line("fp32 gradients", buffers.fp32_gradient_copy, flat=flat, n_d=job.ranks),
        ]
    moving = gradients(job)
    second = line("model beside its flat copy", buffers.second_copy, psi=job.model.parameters, w=w)
    return Tier(
        tuple(held),
        (
            Moment("init", "the model is flattened", (parameters, second)),
            Moment("init", "states are partitioned", tuple(held)),
            Moment("forward", "loss", (*held, *moving.accumulated, *activations.forward)),
            Moment("backward", "loss", (*held, *moving.accumulated, *activations.loss_backward)),
            Moment("backward", "first layer", (*held, *moving.at_end, *activations.layer_backward)),
            Moment("step", "optimizer", (*held, *moving.for_step, *step)),
        ),
    )


def host(job: Job) -> Tier:
    """One node's memory with the optimizer offloaded, and while the processes build their models."""
    ranks, w = job.cluster.gpus_per_node, job.strategy.element_bytes
    built = line("models built", buffers.built_model, psi=job.model.parameters, w=w, ranks=ranks)
    init = Moment("init", "each process builds the model", (built,))
    if not job.strategy.offload_optimizer:
        return Tier((), (init,))
    flat, state_bytes = flat_elements(job), OPTIMIZERS[job.strategy.optimizer].state_bytes
    share, pin = flat // job.ranks, job.strategy.offload_optimizer.pin_memory
    blocks = [
        ("fp32 master copy", 4 * share),
        ("fp32 gradients", 4 * share),
        ("16-bit staging", w * share),
        ("gradient scratch", w * job.model.largest.elements),
    ]
    if job.strategy.stage == 2 and job.strategy.grad_accum > 1:
        blocks.append(("accumulated gradients", w * own_elements(job)))
    lines = [on_node(name, size, ranks, pinned=pin) for name, size in blocks]
    if state_bytes:
        lines.append(on_node("optimizer states", state_bytes * share, ranks, pinned=False))
    return Tier(tuple(lines), (init, *(Moment(p, "", tuple(lines)) for p in ("forward", "backward", "step"))))


def on_node(name: str, size: int, ranks: int, *, pinned: bool) -> Line:
    """A block each rank of the node holds, rounded up when it is page-locked."""
    return line(name, buffers.pinned_on_node if pinned else buffers.pageable_on_node, size=size, ranks=ranks)
