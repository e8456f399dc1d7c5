"""Stage 3: every tensor partitioned, gathered when its module runs (DeepSpeed 0.19.8)."""

from __future__ import annotations

from zeroplan.arithmetic import round_up
from zeroplan.costs.activations import Activations
from zeroplan.costs.deepspeed.fetch import Held, steady_micro_step
from zeroplan.costs.deepspeed.held import DTYPE_BYTES, model_buffers, numbers, state_bytes, state_dtype
from zeroplan.costs.deepspeed.layout import persistent_tensors, shard_elements, sub_groups, tensor_sizes
from zeroplan.costs.deepspeed.once import once, whole
from zeroplan.costs.deepspeed.stages_1_2 import on_node
from zeroplan.formulas import buffers, states
from zeroplan.ledger import Line, Moment, Tier, line
from zeroplan.specs.job import Job


def persistent_elements(job: Job) -> int:
    sizes = tensor_sizes(job)
    return sum(round_up(sizes[index], job.ranks) for index in persistent_tensors(job))


@once(whole)
def live_elements(job: Job) -> tuple[int, int]:
    """Most elements gathered at once in forward and in backward, the persistent ones aside, from the replay."""
    held = [event for event in steady_micro_step(job) if isinstance(event, Held)]
    return (
        max((event.elements for event in held if not event.backward), default=0),
        max((event.elements for event in held if event.backward), default=0),
    )


def gpu(job: Job, activations: Activations) -> Tier:
    strategy, w = job.strategy, job.strategy.element_bytes
    largest = job.model.largest.elements
    held = _held(job)
    live, live_backward = (
        (line("gathered parameters", buffers.gathered_parameters, strategy.dtype, live=live, w=w),) if live else ()
        for live in live_elements(job)
    )
    reducing = (
        line("bucket's copy for the reduce-scatter", buffers.reduce_bucket, strategy.communication,
             bucket=min(strategy.reduce_bucket_size, job.model.parameters),
             w=DTYPE_BYTES[strategy.communication], copies=1),
        line("largest gradient", buffers.largest_gradient, strategy.dtype, largest=largest, g=w),
    )  # fmt: skip
    step: tuple[Line, ...] = ()
    if not strategy.offload_optimizer:
        group, g = max(sub_groups(job)), DTYPE_BYTES[strategy.accumulation]
        step = (line("flattened gradients", buffers.group_gradients, strategy.accumulation, group=group, g=g),)
        if g == 2:
            step += (line("fp32 gradients", buffers.group_fp32_gradients, "float32", group=group),)
    building = (line("largest tensor", buffers.largest_gradient, strategy.dtype, largest=largest, g=w),)
    return Tier(
        tuple(held),
        (
            Moment("init", "tensors are partitioned one by one", (*held, *building)),
            Moment("forward", "loss", (*held, *live, *activations.forward)),
            Moment("backward", "loss", (*held, *live_backward, *activations.loss_backward)),
            Moment("backward", "first layer", (*held, *live_backward, *reducing, *activations.layer_backward)),
            Moment("step", "optimizer", (*held, *step)),
        ),
    )


def _held(job: Job) -> list[Line]:
    strategy, w, shards = job.strategy, job.strategy.element_bytes, shard_elements(job)
    lines = []
    if not strategy.offload_param:
        lines.append(line("parameters", states.shard_parameters, strategy.dtype, shards=shards, w=w))
    if not strategy.offload_optimizer:
        g = DTYPE_BYTES[strategy.accumulation]
        lines.append(line("gradients", states.shard_gradients, strategy.accumulation, shards=shards, g=g))
        lines.append(line("fp32 master copy", states.shard_master, "float32", shards=shards))
        if size := state_bytes(job):
            lines.append(line("optimizer states", states.shard_states, state_dtype(job), shards=shards, m=size))
    if strategy.contiguous_gradients:
        bucket, dtype = strategy.reduce_bucket_size, strategy.communication
        lines.append(line("reduce bucket", buffers.reduce_bucket, dtype, bucket=bucket, w=DTYPE_BYTES[dtype], copies=1))
    if persistent := persistent_elements(job):
        lines.append(
            line("persistent parameters", states.persistent_parameters, strategy.dtype, persistent=persistent, w=w)
        )
    norms = {} if strategy.offload_optimizer else {"float64": 1, "bool": 1}
    return [*lines, *model_buffers(job), *numbers(job, norms)]


def host(job: Job) -> Tier:
    """One node's memory: what offload puts there, per rank, for all ranks of the node."""
    strategy, ranks, w = job.strategy, job.cluster.gpus_per_node, job.strategy.element_bytes
    shards, lines = shard_elements(job), []
    if optimizer := strategy.offload_optimizer:
        pin = optimizer.pin_memory
        lines.append(
            on_node("gradients", DTYPE_BYTES[strategy.accumulation] * shards, ranks, strategy.accumulation, pinned=pin)
        )
        if optimizer.device == "cpu":
            lines.append(on_node("fp32 gradients", 4 * shards, ranks, "float32", pinned=pin))
            lines.append(on_node("fp32 master copy", 4 * shards, ranks, "float32", pinned=False))
            if size := state_bytes(job):
                lines.append(on_node("optimizer states", size * shards, ranks, state_dtype(job), pinned=False))
        else:
            lines.append(line("optimizer swap buffers", buffers.swap_buffers, "float32", ranks=ranks, w=4,
                              buffer_count=optimizer.buffer_count or 4, buffer_size=max(sub_groups(job))))  # fmt: skip
    if params := strategy.offload_param:
        if params.device == "cpu":
            lines.append(on_node("parameters", w * shards, ranks, strategy.dtype, pinned=True))
        else:
            in_memory = min(shards, params.max_in_cpu)
            lines.append(on_node("parameters kept in memory", w * in_memory, ranks, strategy.dtype, pinned=True))
            lines.append(line("parameter swap buffers", buffers.swap_buffers, strategy.dtype, ranks=ranks, w=w,
                              buffer_count=params.buffer_count or 5, buffer_size=params.buffer_size))  # fmt: skip
    held = tuple(lines)
    return Tier(held, tuple(Moment(phase, "", held) for phase in ("init", "forward", "backward", "step")))


def nvme(job: Job) -> Tier:
    """One node's swap files."""
    strategy, ranks, w = job.strategy, job.cluster.gpus_per_node, job.strategy.element_bytes
    shards, lines = shard_elements(job), []
    if strategy.offload_optimizer and strategy.offload_optimizer.device == "nvme":
        size = (4 + state_bytes(job)) * shards
        lines.append(on_node("optimizer files", size, ranks, "float32", pinned=False))
        lines.append(on_node("gradient files", 4 * shards, ranks, "float32", pinned=False))
    if strategy.offload_param and strategy.offload_param.device == "nvme":
        lines.append(on_node("parameter files", w * shards, ranks, strategy.dtype, pinned=False))
    return Tier(tuple(lines), tuple(Moment(p, "", tuple(lines)) for p in ("forward", "backward", "step")))
