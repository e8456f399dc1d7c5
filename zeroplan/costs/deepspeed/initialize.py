"""What is alive while `deepspeed.initialize` runs: the model beside copies and partitions of it, then states.

DeepSpeed 0.19.8. Stages 0 to 2: runtime/zero/stage_1_and_2.py (__init__, initialize_optimizer_states),
runtime/bf16_optimizer.py (_setup_for_real_optimizer), runtime/fp16/fused_optimizer.py and unfused_optimizer.py; where
the card has no room for the flat copy of stages 1 and 2, DeepSpeed makes it on the host. Stage 3:
runtime/zero/partition_parameters.py (_convert_to_zero_parameters), stage3.py (_create_fp32_partitions,
initialize_optimizer_states, _setup_for_real_optimizer, create_reduce_and_remove_grad_hooks). A model built in another
dtype is cast first (runtime/engine.py:_cast_module_mixed_precision): each parameter is copied and takes the copy's
place, then the whole model goes to the GPU, if it is not there yet.
"""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.allocations import Allocation, AllocationTracker
from zeroplan.costs.deepspeed.layout import Group, bucket_dtypes, flat_groups, tensor_sizes
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.nvme_swap import on_gpu
from zeroplan.costs.deepspeed.optimizer_states import (
    built_states,
    counts_on_gpu,
    model_buffers,
    runs_fused,
    state_bytes,
    temporaries,
)
from zeroplan.costs.deepspeed.partitions import (
    partition_dtypes,
    replaced,
    secondary_sizes,
    shard_sizes,
    trainable_shard_elements,
    trained_dtype,
)
from zeroplan.costs.outside import outside
from zeroplan.formulas import hosted, transient, transient_stage_3
from zeroplan.ledger import DTYPE_BYTES, Line, line, total
from zeroplan.specs.job import Job


def init_stages_1_2(job: Job) -> tuple[Line, ...]:
    """All that is alive where most of it is."""
    tracker, _on_host = _initialized(job)
    return (*tracker.peak_lines(), *model_buffers(job))


def flattened_on_host(job: Job) -> int:
    """Elements of the largest flat copy that is made on the host; none where the card has room for them."""
    _alive, on_host = _initialized(job)
    return max((layout.flat for layout in on_host), default=0)


def _initialized(job: Job) -> tuple[AllocationTracker, list[Group]]:
    """Group by group: flatten, forget the originals, copy this rank's partition; then gradients are tried out.

    Beside what is alive the groups that are flattened on the host.
    """
    strategy, dtype, tracker = job.strategy, job.strategy.dtype, _with_model(job)
    on_host: list[Group] = []
    for layout in flat_groups(job):
        if has_room(job, tracker.bytes, layout):
            _flatten(job, tracker, layout.order, layout.flat)
        else:
            _flatten_on_host(job, tracker, layout)
            on_host.append(layout)
        if strategy.runs_bf16_optimizer:
            with tracker.transient((transient.partition_clone, dtype, layout.partition)):
                tracker.allocate(transient.master_weights, "float32", layout.partition)
            tracker.allocate(transient.fp32_gradient_buffer, "float32", layout.flat)
        elif strategy.offload_optimizer or strategy.master != dtype:
            with tracker.transient((transient.partition_clone, dtype, layout.partition)):
                if not strategy.offload_optimizer:
                    tracker.allocate(transient.master_weights, strategy.master, layout.partition)
        else:
            tracker.allocate(transient.master_weights, dtype, layout.partition)
    if strategy.offload_optimizer:
        tracker.allocate(transient.offload_scratch, dtype, job.model.largest_trainable.elements)
    elif not strategy.runs_bf16_optimizer:
        share = sum(layout.partition for layout in flat_groups(job))
        tracker.allocate(transient.fp32_gradients, strategy.master, share)
        if strategy.optimizer == "adagrad":  # built again, it makes its states at once (stage_1_and_2.py:947)
            tracker.allocate(transient.first_states, strategy.master, share)
    return tracker, on_host


def has_room(job: Job, used: int, layout: Group) -> bool:
    """Whether the card has it for a group's flat copy, beside so many bytes and what is not PyTorch's.

    It is taken to be there on a card whose memory is not known.
    """
    capacity = job.cluster.capacity
    needed = used + total([*outside(job), *model_buffers(job)]) + job.strategy.element_bytes * layout.flat
    return capacity is None or job.strategy.runs_bf16_optimizer or needed <= capacity


def init_stage_0(job: Job) -> tuple[Line, ...]:
    """16-bit training copies the weights to fp32 and runs the optimizer once on zeros; fp32 only moves the model."""
    strategy, tracker, psi = job.strategy, _with_model(job), job.model.trainable_parameters
    if strategy.element_bytes == 2:
        if flattens(job):
            for layout, elements in zip(flat_groups(job), group_elements(job), strict=True):
                with tracker.transient((transient.clones, strategy.dtype, elements)):
                    _flatten(job, tracker, layout.order, elements)
                with tracker.transient((transient.clones, strategy.dtype, elements)):
                    tracker.allocate(transient.master_weights, "float32", elements)
        else:
            tracker.allocate(transient.master_weights, "float32", psi)
            tracker.allocate(transient.gradients, strategy.dtype, psi)
        tracker.allocate(transient.fp32_gradients, "float32", psi)
        last = update_matrices(job, tracker, makes_states=True)
        for tensors in group_tensors(job):
            elements = sum(tensors)
            tracker.allocate(transient.first_states, "float32", state_bytes(job) * elements // 4)
            tracker.allocate(transient.first_states, "float32", counts_on_gpu(job) * len(tensors))
            copies = (transient.optimizer_temporaries, "float32", temporaries(job, tensors))
            tracker.transient_peak(*last, copies)
    elif strategy.optimizer == "adagrad":  # its states are made as it is built
        tracker.allocate(transient.first_states, "float32", psi)
    return (*tracker.peak_lines(), *model_buffers(job))


def update_matrices(job: Job, tracker: AllocationTracker, *, makes_states: bool) -> list[Allocation]:
    """Muon's update of whole matrices, and what of it is there until the step ends."""
    if not matrices(job):
        return []
    from zeroplan.costs.deepspeed.muon_update import last_update, update_whole

    update_whole(job, tracker, makes_states=makes_states)
    return last_update(job)


def flattens(job: Job) -> bool:
    """FP16_Optimizer is chosen for DeepSpeed's fused Adam alone (runtime/engine.py:_configure_fp16_optimizer)."""
    adam = job.strategy.optimizer in ("adam", "adamw")
    return job.strategy.element_bytes == 2 and adam and runs_fused(job)


def group_tensors(job: Job) -> list[list[int]]:
    """Elements of the tensors of each parameter group but Muon's, without padding."""
    sizes = tensor_sizes(job)
    return [[sizes[index] for index in layout.order] for layout in flat_groups(job) if not layout.muon]


def group_elements(job: Job) -> list[int]:
    return [sum(tensors) for tensors in group_tensors(job)]


def _with_model(job: Job) -> AllocationTracker:
    tracker = with_model(job)
    for states in built_states(job):
        tracker.allocate(transient.first_states, states.dtype, job.model.trainable_parameters)
    return tracker


def _flatten_on_host(job: Job, tracker: AllocationTracker, layout: Group) -> None:
    """The tensors leave the card before their flat copy comes; an element stays of each."""
    dtype, sizes = job.strategy.dtype, tensor_sizes(job)
    tracker.free(transient.model_as_built, dtype, sum(sizes[index] for index in layout.order))
    with tracker.transient((transient.zeros_to_flatten, dtype, len(layout.order))):
        tracker.allocate(transient.flat_parameters, dtype, layout.flat)


def _flatten(job: Job, tracker: AllocationTracker, order: tuple[int, ...], flat: int) -> None:
    """A group's tensors are copied into one, of which they become views; a lone one without padding is that itself."""
    dtype, sizes = job.strategy.dtype, tensor_sizes(job)
    elements = sum(map(sizes.__getitem__, order))
    if len(order) == 1 and flat == elements:
        tracker.free(transient.model_as_built, dtype, elements)
        tracker.allocate(transient.flat_parameters, dtype, flat)
        return
    concurrent: list[Allocation] = [(transient.zeros_to_flatten, dtype, flat - elements)]
    if job.strategy.selective:
        from zeroplan.costs.deepspeed.zenflow import transposed

        concurrent.insert(0, transposed(job, order))
    with tracker.transient(*concurrent):
        tracker.allocate(transient.flat_parameters, dtype, flat)
    tracker.free(transient.model_as_built, dtype, elements)


def init_stage_3(job: Job) -> tuple[Line, ...]:
    """Everything alive where most of it is."""
    strategy = job.strategy
    tracker = _built_partitioned(job) if strategy.builds_partitioned else with_model(job)
    for states in built_states(job):
        tracker.allocate(transient.first_states, states.dtype, job.model.trainable_parameters)
    _partition(job, tracker)
    _master_weights(job, tracker)
    if strategy.contiguous_gradients:
        for dtype in bucket_dtypes(job):
            tracker.allocate(transient_stage_3.reduce_bucket, dtype, strategy.reduce_bucket_size)
    if not strategy.offload_optimizer:
        tracker.allocate(transient_stage_3.gradient_partitions, strategy.accumulation, trainable_shard_elements(job))
    largest, dtype = job.model.largest_trainable.elements, trained_dtype(job)  # each is gathered once to have its hook
    tracker.allocate(transient_stage_3.gathered_parameters, dtype, round_up(largest, job.ranks))
    if strategy.offload_param:
        tracker.allocate(transient_stage_3.partitions_from_host, dtype, ceil_div(largest, job.ranks))
    return (*tracker.peak_lines(), *model_buffers(job))


def _partition(job: Job, tracker: AllocationTracker) -> None:
    """What was built whole is replaced tensor by tensor."""
    stays, second = not job.strategy.offload_param, secondary_sizes(job)
    sizes, dtypes, keeps = tensor_sizes(job), partition_dtypes(job), replaced(job)
    for index in job.model.added if job.strategy.builds_partitioned else range(len(sizes)):
        dtype = dtypes[index]
        if second:
            tracker.allocate(transient_stage_3.secondary_partitions, dtype, stays * second[index])
        tracker.allocate(transient_stage_3.parameter_partitions, dtype, stays * ceil_div(sizes[index], job.ranks))
        if index not in keeps:
            tracker.free(transient.model_as_built, dtype, sizes[index])


def _built_partitioned(job: Job) -> AllocationTracker:
    """What zero.Init has partitioned, and whole what peft added to it afterwards."""
    tracker, dtype, stays = AllocationTracker(), job.strategy.dtype, not job.strategy.offload_param  # none is packed
    added, partitions, second = job.model.added, shard_sizes(job), secondary_sizes(job)
    for category, sizes in (
        (transient_stage_3.parameter_partitions, partitions), (transient_stage_3.secondary_partitions, second),
    ):  # fmt: skip
        if sizes:
            tracker.allocate(category, dtype, stays * (sum(sizes) - sum(sizes[index] for index in added)))
    tracker.allocate(transient.model_as_built, job.adapter_dtype, sum(tensor_sizes(job)[index] for index in added))
    return tracker


def _master_weights(job: Job, tracker: AllocationTracker) -> None:
    """Sub-group by sub-group converted, then cloned; a buffer of zeros stands in for the first gradients.

    Adagrad is built again beside it and makes its states at once (runtime/zero/stage3.py:1358).
    """
    strategy, groups = job.strategy, [group.elements for group in on_gpu(job)]
    for elements, group in zip(groups, on_gpu(job), strict=True):
        converted = elements if trained_dtype(job) != strategy.master else 0
        with tracker.transient((transient_stage_3.converted_weights, strategy.master, converted)):
            tracker.allocate(transient.master_weights, strategy.master, elements)
            if group.muon:
                tracker.allocate(transient.first_states, strategy.communication, elements)
    if strategy.offload_optimizer:
        tracker.allocate(transient_stage_3.fp32_gradients, strategy.master, sum(groups))
    else:
        made = trainable_shard_elements(job) * state_bytes(job) // 4 if strategy.optimizer == "adagrad" else 0
        with tracker.transient((transient_stage_3.fp32_gradients, strategy.master, max(groups))):
            tracker.allocate(transient.first_states, strategy.master, made)


def with_model(job: Job) -> AllocationTracker:
    """The GPU with the model on it as `initialize` goes on with it."""
    strategy, tracker = job.strategy, AllocationTracker()
    if strategy.built_on == "gpu":
        _cast(job, tracker)
    else:
        tracker.allocate(transient.model_as_built, strategy.dtype, job.model.parameters)
    return tracker


def on_host(job: Job) -> list[Line]:
    """The models that a node's processes build, and their copies, where most bytes are alive."""
    if job.strategy.builds_partitioned or job.strategy.built_on == "gpu":
        return []
    tracker = AllocationTracker()
    _cast(job, tracker)
    return [
        line("models built", hosted.built_model, dtype, psi=elements, w=DTYPE_BYTES[dtype],
             ranks=job.cluster.gpus_per_node)
        for (_rule, dtype), elements in tracker.peak.items() if elements
    ]  # fmt: skip


def _cast(job: Job, tracker: AllocationTracker) -> None:
    """Tensor by tensor (runtime/engine.py: module.half()). Packed bits are in a dtype of their own, which stays, and
    adapters around them in that of their products.
    """
    strategy, low_rank, rest = job.strategy, job.model.low_rank if job.model.quantization else (), job.model.parameters
    for tensor in (*job.model.packed, *(job.model.tensors[index] for index in low_rank)):
        tracker.allocate(transient.model_as_built, tensor.dtype or strategy.dtype, tensor.elements)
        rest -= tensor.elements
    tracker.allocate(transient.model_as_built, strategy.built_dtype, rest)
    if strategy.is_cast:
        for index, tensor in enumerate(job.model.tensors):
            if not (tensor.packed or index in low_rank):
                tracker.allocate(transient.model_as_built, strategy.dtype, tensor.elements)
                tracker.free(transient.model_as_built, strategy.built_dtype, tensor.elements)
