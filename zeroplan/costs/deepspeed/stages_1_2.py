"""Stages 1 and 2: flat parameters whole, master copy and optimizer states partitioned (DeepSpeed 0.19.8)."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.activations import Activations
from zeroplan.costs.deepspeed.held import DTYPE_BYTES, model_buffers, numbers, state_bytes, state_dtype
from zeroplan.costs.deepspeed.layout import flat_groups, own_elements
from zeroplan.formulas import buffers, states
from zeroplan.ledger import Line, Moment, Tier, line
from zeroplan.specs.job import Job


class Gradients(NamedTuple):
    """Gradients on the GPU between micro-steps, at the end of backward, and at the step."""

    accumulated: tuple[Line, ...]
    at_end: tuple[Line, ...]
    for_step: tuple[Line, ...]


def gradients(job: Job) -> Gradients:
    """Stage 1 keeps all of them until the boundary; stage 2 those of whole tensors that touch its partition."""
    strategy, w, dtype = job.strategy, job.strategy.element_bytes, job.strategy.dtype
    bucket = line(
        "reduce bucket", buffers.reduce_bucket, dtype,
        bucket=strategy.reduce_bucket_size, w=w, copies=2 if strategy.overlaps else 1,
    )  # fmt: skip
    own = line("own gradients", buffers.own_gradients, dtype, own=own_elements(job), g=w)
    every = line("gradients", buffers.whole_gradients, dtype, psi=job.model.parameters, g=w)
    more_than_one = strategy.grad_accum > 1
    if strategy.stage == 1 and (more_than_one or not strategy.overlaps):
        return Gradients((every, bucket) if more_than_one else (), (every, bucket), (own,))
    large = line("largest gradient", buffers.largest_gradient, dtype, largest=job.model.largest.elements, g=w)
    if strategy.offload_optimizer:
        return Gradients((), (bucket, large), ())
    return Gradients((own,) if more_than_one else (), (own, bucket, large), (own,))


def gpu(job: Job, activations: Activations) -> Tier:
    strategy, w = job.strategy, job.strategy.element_bytes
    flat = sum(layout.flat for layout in flat_groups(job))
    parameters = line("parameters", states.flat_parameters, strategy.dtype, flat=flat, w=w)
    held, step = [parameters], []
    if strategy.offload_optimizer:
        largest = job.model.largest.elements
        held.append(line("offload scratch", buffers.offload_scratch, strategy.dtype, largest=largest, g=w))
    else:
        held += _optimizer(job, flat)
        if strategy.runs_bf16_optimizer:
            held.append(line("fp32 gradients", buffers.whole_gradients, "float32", psi=flat, g=4))
        g = DTYPE_BYTES[strategy.accumulation]
        step = [
            line(
                "flattened gradients", buffers.flat_gradient_copy, strategy.accumulation, flat=flat, g=g, n_d=job.ranks
            ),
            line("fp32 gradients", buffers.fp32_gradient_copy, "float32", flat=flat, n_d=job.ranks),
        ]
    on_gpu = strategy.compute_grad_norm and not strategy.offload_optimizer
    held += [*model_buffers(job), *numbers(job, {"float32": int(on_gpu)})]
    moving = gradients(job)
    second = line("model beside its flat copy", buffers.second_copy, strategy.dtype, psi=job.model.parameters, w=w)
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


def _optimizer(job: Job, flat: int) -> list[Line]:
    lines = [line("fp32 master copy", states.flat_master, "float32", flat=flat, n_d=job.ranks)]
    if size := state_bytes(job):
        lines.append(line("optimizer states", states.flat_states, state_dtype(job), flat=flat, m=size, n_d=job.ranks))
    return lines


def host(job: Job) -> Tier:
    """One node's memory with the optimizer offloaded, and while the processes build their models."""
    ranks, w, dtype = job.cluster.gpus_per_node, job.strategy.element_bytes, job.strategy.dtype
    built = line("models built", buffers.built_model, dtype, psi=job.model.parameters, w=w, ranks=ranks)
    init = Moment("init", "each process builds the model", (built,))
    if not job.strategy.offload_optimizer:
        return Tier((), (init,))
    groups = flat_groups(job)
    share, pin = sum(layout.partition for layout in groups), job.strategy.offload_optimizer.pin_memory
    blocks = [
        ("fp32 master copy", "float32", 4 * share),
        ("fp32 gradients", "float32", 4 * share),
        ("16-bit staging", dtype, w * share),
        ("gradient scratch", dtype, w * job.model.largest.elements),
    ]
    if job.strategy.stage == 2 and job.strategy.grad_accum > 1:
        blocks.append(("accumulated gradients", dtype, w * own_elements(job)))
    lines = [on_node(name, size, ranks, kind, pinned=pin) for name, kind, size in blocks]
    if size := state_bytes(job):
        lines.append(on_node("optimizer states", size * share, ranks, state_dtype(job), pinned=False))
    return Tier(tuple(lines), (init, *(Moment(p, "", tuple(lines)) for p in ("forward", "backward", "step"))))


def on_node(name: str, size: int, ranks: int, dtype: str, *, pinned: bool) -> Line:
    """A block each rank of the node holds, rounded up when it is page-locked."""
    return line(name, buffers.pinned_on_node if pinned else buffers.pageable_on_node, dtype, size=size, ranks=ranks)
