"""What one node's memory holds between steps: blocks of each rank, page-locked or not (DeepSpeed 0.19.8).

Torch's allocator rounds each page-locked block up to a power of two; DeepSpeed's own (DS_PIN_MEMORY_BACKEND=native,
and the buffers of the asynchronous I/O operator) locks what was asked for. Inputs of checkpointed layers come on top
(activation_checkpointing; what the GPU keeps of them is the timeline's, autograd/offloaded_inputs.py). On DeepSpeed's
CPU accelerator (`--backend cpu`) nothing is page-locked (accelerator/cpu_accelerator.py: pin_memory), torch's own
optimizers go tensor by tensor, and what an offload moves to the host stays in the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zeroplan.costs.cache import cached, order_free_key
from zeroplan.costs.deepspeed import initialize
from zeroplan.costs.deepspeed.initialize import flattened_on_host
from zeroplan.costs.deepspeed.layout import (
    PartitionSlice,
    flat_groups,
    fp32_groups,
    group_members,
    own_pieces,
    tensor_sizes,
)
from zeroplan.costs.deepspeed.nvme_swap import (
    EXACT,
    PAGEABLE,
    TORCH,
    HostAllocation,
    gradient_files,
    optimized,
    optimizer_files,
    parameter_blocks,
    parameter_files,
    swap_buffers,
)
from zeroplan.costs.deepspeed.optimizer_states import (
    FROZEN,
    counts_on_gpu,
    host_state_dtype,
    state_bytes,
    updated_tensors,
)
from zeroplan.costs.deepspeed.partitions import (
    below_ratio,
    partition_dtypes,
    secondary_sizes,
    shard_sizes,
    trainable_shard_elements,
    trained_dtype,
    transient_secondary_sizes,
)
from zeroplan.costs.passes import timeline_request
from zeroplan.errors import ContradictionError
from zeroplan.formulas import hosted
from zeroplan.ledger import DTYPE_BYTES, PHASES, Line, Moment, Tier, line
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.job import Job


def cpu_pins() -> bool:
    """Page-locking does nothing."""
    return False


def lines(job: Job, blocks: Iterable[HostAllocation]) -> list[Line]:
    """The blocks of all ranks of a node."""
    ranks, result = job.cluster.gpus_per_node, []
    pins = job.strategy.backend != "cpu" or cpu_pins()
    for block in blocks:
        size = sum(block.sizes)
        if not size:
            continue
        if block.pinned == TORCH and pins and not job.strategy.native_pinning:
            rounded = sum(map(hosted.power_of_two, block.sizes))
            pinned = line(
                block.name, hosted.rounded_on_node, block.dtype, size=size, rounded=rounded, ranks=ranks
            )  # fmt: skip
            result.append(pinned)
        else:
            rule = hosted.locked_on_node if block.pinned and pins else hosted.pageable_on_node
            result.append(line(block.name, rule, block.dtype, size=size, ranks=ranks))
    return result


def tier(job: Job) -> Tier:
    """One node's memory; before `initialize` each of its processes builds the model, unless zero.Init does."""
    strategy, ranks, w = job.strategy, job.cluster.gpus_per_node, job.strategy.element_bytes
    resident = (*_states(job), *lines(job, pooled(job)))
    moments = [Moment(phase, "", resident) for phase in PHASES]
    if waiting := inputs_on_host(job):
        moments += [Moment(phase, "all layers' inputs", (*resident, *waiting)) for phase in ("forward", "backward")]
    if secondary := lines(job, _secondary(job)):
        moments.append(Moment("step", "secondary partitions", (*resident, *secondary)))
    if built := initialize.on_host(job):
        moments.append(Moment("init", "each process builds the model", tuple(built)))
    if strategy.stage in (1, 2) and (flat := flattened_on_host(job)):
        concurrent = line("flattened on the host", hosted.flattened, strategy.dtype, flat=flat, w=w, ranks=ranks)
        moments.append(Moment("init", "the card has no room for flat copies", (concurrent,)))
    if strategy.stage == 3 and not strategy.offload_param:
        moments.append(Moment("init", "partitions are laid side by side", tuple(_defragmented(job))))
    return Tier(resident, tuple(moments))


def _defragmented(job: Job) -> Iterator[Line]:
    """Those of all that trains (runtime/zero/stage3.py:_get_parameter_partitions)."""
    dtype, ranks = trained_dtype(job), job.cluster.gpus_per_node
    shards = trainable_shard_elements(job)
    yield line("partitions", hosted.defragmented, dtype, shards=shards, w=DTYPE_BYTES[dtype], ranks=ranks)


@cached(order_free_key)
def _states(job: Job) -> list[Line]:
    """What stands there between steps, whatever runs: model and optimizer states, and their staging."""
    return lines(job, (stage_0, stages_1_2, stages_1_2, stage_3)[job.strategy.stage](job))


def nvme(job: Job) -> Tier:
    """One node's swap files."""
    ranks = job.cluster.gpus_per_node
    files = (
        ("optimizer files", job.strategy.master, optimizer_files(job)),
        ("gradient files", job.strategy.master, gradient_files(job)),
        ("parameter files", job.strategy.dtype, parameter_files(job)),
    )
    resident = tuple(
        line(name, hosted.files_on_node, dtype, size=sum(sizes), ranks=ranks) for name, dtype, sizes in files if sizes
    )
    return Tier(resident, tuple(Moment(phase, "", resident) for phase in ("forward", "backward", "step")))


def stages_1_2(job: Job) -> Iterator[HostAllocation]:
    """Optimizer offload: master weights, their gradients and staging page-locked, states not."""
    strategy, offload = job.strategy, job.strategy.offload_optimizer
    by_adam = [layout for layout in flat_groups(job) if not layout.muon]
    yield from _step_counters(job, updated_tensors(job) if offload is None or strategy.runs_torch_adam else 0)
    if offload is None:
        return
    pin = TORCH if offload.pin_memory else PAGEABLE
    shares = [layout.partition for layout in flat_groups(job)]
    dtype, master, states = strategy.dtype, strategy.master, host_state_dtype(job)
    if strategy.overlaps_update:
        from zeroplan.costs.deepspeed import zenflow

        yield from zenflow.shared(job)
    else:
        yield HostAllocation("master weights", master, _bytes(shares, master), pin)
        yield HostAllocation("gradients for the optimizer", master, _bytes(shares, master), pin)
        yield HostAllocation(
            "optimizer states", states, tuple(state_bytes(job, states) * part.partition for part in by_adam)
        )
        of_muon = [layout.partition for layout in flat_groups(job) if layout.muon]
        yield HostAllocation("optimizer states", master, _bytes(of_muon, master))
    yield HostAllocation("parameter staging", dtype, _bytes(shares, dtype), pin)
    yield HostAllocation("gradient scratch", dtype, _bytes([job.model.largest_trainable.elements], dtype), pin)
    if master == "float32":  # whole tensors; 16-bit masters' own gradients take their pieces
        own = list(map(tensor_sizes(job).__getitem__, accumulated(job)))
        yield HostAllocation("accumulated gradients", dtype, _bytes(own, dtype), pin)
    if strategy.selective:
        from zeroplan.costs.deepspeed import zenflow

        yield HostAllocation("chosen moments", dtype, _bytes(zenflow.on_host(job), dtype), pin)
    yield HostAllocation("norm", "float32", (4,))


def stage_0(job: Job) -> Iterator[HostAllocation]:
    """Nothing but the counters of torch's own optimizers, tensor by tensor."""
    yield from _step_counters(job, updated_tensors(job))


def _step_counters(job: Job, count: int) -> Iterator[HostAllocation]:
    """Torch's own Adam and Adagrad keep each parameter's number of steps on the host, Adagrad the model's own too;
    fused Adam keeps it on the GPU.
    """
    strategy = job.strategy
    if strategy.optimizer == "adagrad" and not strategy.offload_optimizer:
        wrapped = strategy.stage > 0 or strategy.element_bytes == 2
        yield HostAllocation("step counters", "float32", (4,) * (count + wrapped * len(job.model.trainable)))
    elif count and (strategy.runs_torch_adam or strategy.offload_optimizer) and not counts_on_gpu(job):
        yield HostAllocation("step counters", "float32", (4,) * count)


def accumulated(job: Job) -> dict[int, PartitionSlice]:
    """Tensors of this rank whose gradients are added up on the host, where every micro-step reduces.

    Those in an fp32 partition are not among them.
    """
    strategy, fp32 = job.strategy, fp32_groups(job)
    if not strategy.reduces_every_micro_step or strategy.micro_steps == 1:
        return {}
    return {index: piece for index, piece in own_pieces(job).items() if piece.group not in fp32}


def stage_3(job: Job) -> Iterator[HostAllocation]:
    """Sub-groups that the host updates, gradient partitions, and offloaded parameters."""
    strategy, offload = job.strategy, job.strategy.offload_optimizer
    master, states = strategy.master, host_state_dtype(job)
    by_torch = below_ratio(job)
    if offload:
        pin = TORCH if offload.pin_memory else PAGEABLE
        groups = optimized(job)
        kept = [group.elements for group in groups if not (group.on_gpu or group.swapped)]
        torchs = [group.elements for group in groups if group.swapped and group.by_torch]
        partitions = [trainable_shard_elements(job)]
        yield HostAllocation("gradients", strategy.accumulation, _bytes(partitions, strategy.accumulation), pin)
        yield HostAllocation("gradients for the optimizer", master, _bytes(kept, master), pin)
        yield HostAllocation("master weights", master, _bytes(kept, master))
        of_muon = [g.elements for g in groups if g.muon and not g.swapped]
        by_adam = [g.elements for g in groups if not (g.on_gpu or g.swapped or g.muon)]
        yield HostAllocation("optimizer states", states, tuple(state_bytes(job, states) * size for size in by_adam))
        yield HostAllocation("optimizer states", strategy.communication, _bytes(of_muon, strategy.communication))
        yield HostAllocation("optimizer states", master, tuple(state_bytes(job, master) * size for size in torchs))
        yield HostAllocation("norm", "float32", (4,))
        yield HostAllocation("overflow flag", "bool", (1,))
        if offload.device == "nvme":
            yield HostAllocation("optimizer swap buffers", master, swap_buffers(job), EXACT)
    yield from _step_counters(job, updated_tensors(job) if strategy.runs_torch_adam else by_torch)
    if strategy.offload_param and strategy.offload_param.device == "cpu":
        sizes = shard_sizes(job)
        shards = [sum([sizes[index] for index in members]) for members in group_members(job)]
        trained = trained_dtype(job)
        yield HostAllocation("parameters", trained, _bytes(shards, trained), TORCH)
        pin = TORCH if strategy.offload_param.pin_memory else PAGEABLE
        secondary, dtypes = secondary_sizes(job), partition_dtypes(job)
        for name, each in ((FROZEN, sizes), ("secondary partitions", secondary)):
            for dtype in sorted(set(dtypes)):
                shards = [each[index] for index in sorted(job.model.frozen) if each and dtypes[index] == dtype]
                yield HostAllocation(name, dtype, _bytes(shards, dtype), pin)
    elif strategy.offload_param:
        yield from parameter_blocks(job)


def _secondary(job: Job) -> Iterator[HostAllocation]:
    """A second copy of offloaded parameters that train lies beside the first until the step's end (hpZ)."""
    if offload := job.strategy.offload_param:
        pin = TORCH if offload.pin_memory else PAGEABLE
        dtype = trained_dtype(job)
        yield HostAllocation("secondary partitions", dtype, _bytes(transient_secondary_sizes(job), dtype), pin)


def _bytes(elements: Iterable[int], dtype: str) -> tuple[int, ...]:
    return tuple(DTYPE_BYTES[dtype] * count for count in elements)


TENSOR_PARALLEL = 1


def _how(job: Job) -> ActivationCheckpointing:
    return job.strategy.recomputing.inputs


def sizes(job: Job) -> tuple[int, ...]:
    """Bytes of each layer's input. Raises `ContradictionError` for a family whose forward is not written out."""
    try:
        return job.model.profile.offloaded_inputs(timeline_request(job)) if _how(job).empties else ()
    except NotImplementedError:
        raise ContradictionError(
            f"activation_checkpointing: found for {job.model.family}, whose activations are a closed form that has "
            "nothing of it; leave it out"
        ) from None


def pooled(job: Job) -> Iterator[HostAllocation]:
    """Page-locked buffers for all but the last input, which never leaves; the pool keeps them between steps."""
    if _how(job).through_pool:
        yield HostAllocation("activation checkpoints", job.strategy.dtype, sizes(job)[:-1], TORCH)


def inputs_on_host(job: Job) -> list[Line]:
    """From forward to backward, on a node."""
    how, each, ranks = _how(job), sizes(job), job.cluster.gpus_per_node
    if not how.partitions or not each:
        return []
    count = how.number if how.contiguous and how.number else len(each)
    shapes = line("shapes of checkpoints", hosted.shapes_on_node, "int64", layers=count, ranks=ranks)
    if not how.on_host:
        return [shapes]
    size = count * each[0] if how.contiguous else sum(each)
    name, dtype = "activation checkpoints", job.strategy.dtype
    return [line(name, hosted.checkpoints_on_node, dtype, size=size, tp=TENSOR_PARALLEL, ranks=ranks), shapes]


def input_copies(job: Job) -> tuple[int, int]:
    """Bytes to the host and back, of one rank in one micro-step."""
    how, each = _how(job), sizes(job)
    if not how.on_host:
        return 0, 0
    return (sum(each), sum(each)) if how.partitions else (sum(each[:-1]), sum(each[:-2]))
