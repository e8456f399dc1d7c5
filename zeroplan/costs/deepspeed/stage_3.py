"""Stage 3: every tensor partitioned, gathered when its module runs (DeepSpeed 0.19.8)."""

from __future__ import annotations

from zeroplan.arithmetic import round_up
from zeroplan.costs.activations import Activations
from zeroplan.costs.deepspeed.stages_1_2 import on_node
from zeroplan.costs.partition import largest_group, persistent_tensors, shard_elements
from zeroplan.formulas import buffers, states
from zeroplan.ledger import Line, Moment, Tier, line
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OPTIMIZERS


def persistent_elements(job: Job) -> int:
    return sum(round_up(tensor.elements, job.ranks) for tensor in persistent_tensors(job))


def live_elements(job: Job) -> int:
    """Gathered at once: up to stage3_max_live_parameters and one tensor more, with anything that keeps them.

    Without prefetch and reuse only the tensor at work is gathered.
    """
    strategy, largest = job.strategy, job.model.largest.elements
    whole = job.model.parameters - sum(tensor.elements for tensor in persistent_tensors(job))
    if job.ranks == 1 or (strategy.prefetch_bucket_size == 0 and strategy.max_reuse_distance == 0):
        return 0 if job.ranks == 1 else min(whole, largest)
    return min(whole, strategy.max_live_parameters + largest)


def gpu(job: Job, activations: Activations) -> Tier:
    strategy, w = job.strategy, job.strategy.element_bytes
    largest = job.model.largest.elements
    held = list(_held(job))
    live = live_elements(job)
    gathered = (line("gathered parameters", buffers.gathered_parameters, live=live, w=w),) if live else ()
    reducing = (
        line("bucket's copy for the reduce-scatter", buffers.reduce_bucket,
             bucket=min(strategy.reduce_bucket_size, job.model.parameters), w=w, copies=1),
        line("largest gradient", buffers.largest_gradient, largest=largest, g=w),
    )  # fmt: skip
    step: tuple[Line, ...] = ()
    if not strategy.offload_optimizer:
        group = largest_group(job)
        step = (line("flattened gradients", buffers.group_gradients, group=group, g=w),)
        if w == 2:
            step += (line("fp32 gradients", buffers.group_fp32_gradients, group=group),)
    building = (line("largest tensor", buffers.largest_gradient, largest=largest, g=w),)
    return Tier(
        tuple(held),
        (
            Moment("init", "tensors are partitioned one by one", (*held, *building)),
            Moment("forward", "loss", (*held, *gathered, *activations.forward)),
            Moment("backward", "loss", (*held, *gathered, *activations.loss_backward)),
            Moment("backward", "first layer", (*held, *gathered, *reducing, *activations.layer_backward)),
            Moment("step", "optimizer", (*held, *step)),
        ),
    )


def _held(job: Job) -> list[Line]:
    strategy, w, shards = job.strategy, job.strategy.element_bytes, shard_elements(job)
    state_bytes = OPTIMIZERS[strategy.optimizer].state_bytes
    lines = []
    if not strategy.offload_param:
        lines.append(line("parameters", states.shard_parameters, shards=shards, w=w))
    if not strategy.offload_optimizer:
        lines.append(line("gradients", states.shard_gradients, shards=shards, g=w))
        lines.append(line("fp32 master copy", states.shard_master, shards=shards))
        if state_bytes:
            lines.append(line("optimizer states", states.shard_states, shards=shards, m=state_bytes))
    if strategy.contiguous_gradients:
        bucket = strategy.reduce_bucket_size
        lines.append(line("reduce bucket", buffers.reduce_bucket, bucket=bucket, w=w, copies=1))
    if persistent := persistent_elements(job):
        lines.append(line("persistent parameters", states.persistent_parameters, persistent=persistent, w=w))
    return lines


def host(job: Job) -> Tier:
    """One node's memory: what offload puts there, per rank, for all ranks of the node."""
    strategy, ranks, w = job.strategy, job.cluster.gpus_per_node, job.strategy.element_bytes
    shards, lines = shard_elements(job), []
    if optimizer := strategy.offload_optimizer:
        pin = optimizer.pin_memory
        lines.append(on_node("gradients", w * shards, ranks, pinned=pin))
        if optimizer.device == "cpu":
            lines.append(on_node("fp32 gradients", 4 * shards, ranks, pinned=pin))
            lines.append(on_node("fp32 master copy", 4 * shards, ranks, pinned=False))
            if state_bytes := OPTIMIZERS[strategy.optimizer].state_bytes:
                lines.append(on_node("optimizer states", state_bytes * shards, ranks, pinned=False))
        else:
            lines.append(line("optimizer swap buffers", buffers.swap_buffers, ranks=ranks, w=4,
                              buffer_count=optimizer.buffer_count or 4, buffer_size=largest_group(job)))  # fmt: skip
    if params := strategy.offload_param:
        if params.device == "cpu":
            lines.append(on_node("parameters", w * shards, ranks, pinned=True))
        else:
            in_memory = min(shards, params.max_in_cpu)
            lines.append(on_node("parameters kept in memory", w * in_memory, ranks, pinned=True))
            lines.append(line("parameter swap buffers", buffers.swap_buffers, ranks=ranks, w=w,
                              buffer_count=params.buffer_count or 5, buffer_size=params.buffer_size))  # fmt: skip
    held = tuple(lines)
    return Tier(held, tuple(Moment(phase, "", held) for phase in ("init", "forward", "backward", "step")))


def nvme(job: Job) -> Tier:
    """One node's swap files."""
    strategy, ranks, w = job.strategy, job.cluster.gpus_per_node, job.strategy.element_bytes
    shards, lines = shard_elements(job), []
    if strategy.offload_optimizer and strategy.offload_optimizer.device == "nvme":
        state_bytes = 4 + OPTIMIZERS[strategy.optimizer].state_bytes
        lines.append(on_node("optimizer files", state_bytes * shards, ranks, pinned=False))
        lines.append(on_node("gradient files", 4 * shards, ranks, pinned=False))
    if strategy.offload_param and strategy.offload_param.device == "nvme":
        lines.append(on_node("parameter files", w * shards, ranks, pinned=False))
    return Tier(tuple(lines), tuple(Moment(p, "", tuple(lines)) for p in ("forward", "backward", "step")))
