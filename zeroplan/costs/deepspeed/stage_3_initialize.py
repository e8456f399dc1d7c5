"""Replay of `initialize` at stage 3: tensors partitioned one by one, master weights, buffers, the first gathers.

DeepSpeed 0.19.8 runtime/zero/partition_parameters.py (_convert_to_zero_parameters), stage3.py (_create_fp32_partitions,
initialize_optimizer_states, _setup_for_real_optimizer, create_reduce_and_remove_grad_hooks).
"""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.allocations import AllocationTracker
from zeroplan.costs.deepspeed import model_cast
from zeroplan.costs.deepspeed.layout import bucket_dtypes, tensor_sizes
from zeroplan.costs.deepspeed.nvme_swap import on_gpu
from zeroplan.costs.deepspeed.partitions import secondary_sizes, shard_elements, trainable_shard_elements
from zeroplan.costs.deepspeed.resident import built_states, model_buffers, state_bytes
from zeroplan.formulas import gathered, moments
from zeroplan.ledger import Line
from zeroplan.specs.job import Job


def initialize(job: Job) -> tuple[Line, ...]:
    """Everything alive where most of it is."""
    strategy, tracker = (
        job.strategy,
        AllocationTracker() if job.strategy.builds_partitioned else model_cast.with_model(job),
    )
    for states in built_states(job):
        tracker.allocate(moments.first_states, states.dtype, job.model.trainable_parameters)
    _partition(job, tracker)
    _master_weights(job, tracker)
    if strategy.contiguous_gradients:
        for dtype in bucket_dtypes(job):
            tracker.allocate(moments.reduce_bucket, dtype, strategy.reduce_bucket_size)
    if not strategy.offload_optimizer:
        tracker.allocate(gathered.gradient_partitions, strategy.accumulation, trainable_shard_elements(job))
    largest = job.model.largest_trainable.elements  # each is gathered once to have its hook
    tracker.allocate(gathered.gathered_parameters, strategy.dtype, round_up(largest, job.ranks))
    if strategy.offload_param:
        tracker.allocate(gathered.partitions_from_host, strategy.dtype, ceil_div(largest, job.ranks))
    return (*tracker.peak_lines(), *model_buffers(job))


def _partition(job: Job, tracker: AllocationTracker) -> None:
    """A model built beforehand is replaced tensor by tensor; under zero.Init it came partitioned."""
    dtype, stays, second = job.strategy.dtype, not job.strategy.offload_param, secondary_sizes(job)
    if job.strategy.builds_partitioned:
        tracker.allocate(gathered.parameter_partitions, dtype, stays * shard_elements(job))
        tracker.allocate(gathered.secondary_partitions, dtype, stays * sum(second))
        return
    for index, size in enumerate(tensor_sizes(job)):
        if second:
            tracker.allocate(gathered.secondary_partitions, dtype, stays * second[index])
        tracker.allocate(gathered.parameter_partitions, dtype, stays * ceil_div(size, job.ranks))
        tracker.free(moments.model_as_built, dtype, size)


def _master_weights(job: Job, tracker: AllocationTracker) -> None:
    """Sub-group by sub-group converted, then cloned; a buffer of zeros stands in for the first gradients.

    Adagrad is built again beside it and makes its states at once (runtime/zero/stage3.py:1358).
    """
    strategy, groups = job.strategy, [group.elements for group in on_gpu(job)]
    for elements, group in zip(groups, on_gpu(job), strict=True):
        converted = elements if strategy.dtype != strategy.master else 0
        with tracker.transient((gathered.converted_weights, strategy.master, converted)):
            tracker.allocate(moments.master_weights, strategy.master, elements)
            if group.muon:
                tracker.allocate(moments.first_states, strategy.communication, elements)
    if strategy.offload_optimizer:
        tracker.allocate(gathered.fp32_gradients, strategy.master, sum(groups))
    else:
        made = trainable_shard_elements(job) * state_bytes(job) // 4 if strategy.optimizer == "adagrad" else 0
        with tracker.transient((gathered.fp32_gradients, strategy.master, max(groups))):
            tracker.allocate(moments.first_states, strategy.master, made)
