"""What stage 3 keeps on NVMe, in files of each rank, and the page-locked buffers between them and the GPU.

DeepSpeed 0.19.8 runtime/swap_tensor (optimizer_utils.py, partitioned_param_swapper.py), runtime/zero/stage3.py
(_create_param_groups_fp16_flat_cpu_memory, _create_fp16_partitions_with_defragmentation). Sizes are bytes.

Replay of the swapper of NVMe parameters: which partitions are read, and when its buffers run out.

It follows runtime/swap_tensor/partitioned_param_swapper.py and partitioned_param_coordinator.py of DeepSpeed 0.19.8
(__prefetch_nvme_param_partitions): a partition that has been read keeps its buffer until its tensor is released.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.cache import cached
from zeroplan.costs.deepspeed.layout import group_members, groups_key, tensor_sizes
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.optimizer_states import state_bytes
from zeroplan.costs.deepspeed.partitions import below_ratio, shard_sizes, sub_group_members, sub_groups
from zeroplan.errors import ContradictionError
from zeroplan.ledger import DTYPE_BYTES
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload, Strategy


class OutOfBuffersError(Exception):
    """DeepSpeed stops: more partitions are to be read than buffers are free, or one twice at once."""

    def __init__(self, *, more_may_help: bool) -> None:
        """`more_may_help`: buffers were too few for something until then; otherwise more of them change nothing."""
        super().__init__("Not enough buffers")
        self.more_may_help = more_may_help


class Swapper:
    """Partitions of one rank: on NVMe, or in a buffer."""

    def __init__(self, swapped: frozenset[int], buffers: int) -> None:
        """`swapped`: tensors whose partitions live on NVMe."""
        self.swapped, self.free = swapped, buffers
        self.was_short = False
        """Whether more was to be read at some time than buffers were free."""
        self.here: set[int] = set()
        self.read: list[int] = []

    def absent(self, index: int) -> bool:
        return index in self.swapped and index not in self.here

    def fetch(self, tensors: Iterable[int]) -> None:
        """Read what a gather misses."""
        self._read([index for index in tensors if self.absent(index)])

    def fetch_ahead(self, queue: Iterable[int], sizes: Sequence[int], flying: int) -> None:
        """Read for the next gathers: twice the elements that are being gathered, while buffers are free."""
        chosen: list[int] = []
        considered = 0
        for index in queue:
            if considered > 2 * flying:
                break
            if len(chosen) >= self.free:
                self.was_short = True
                break
            if self.absent(index):
                chosen.append(index)
            considered += sizes[index]
        self._read(chosen)

    def release(self, index: int) -> None:
        if index in self.here:
            self.here.discard(index)
            self.free += 1

    def _read(self, tensors: list[int]) -> None:
        self.was_short |= len(tensors) > self.free
        if len(tensors) > self.free or len(set(tensors)) < len(tensors):
            raise OutOfBuffersError(more_may_help=self.was_short)
        self.here.update(tensors)
        self.free -= len(tensors)
        self.read += tensors


PAGEABLE, TORCH, EXACT = "", "torch", "exact"


class HostAllocation(NamedTuple):
    """Host memory of one kind that a rank holds."""

    name: str
    dtype: str
    sizes: tuple[int, ...]
    """Bytes of each allocation."""
    pinned: str = PAGEABLE
    """Page-locked by which allocator."""


SMALLEST = 1024**2
"""A tensor below this, or below aio.block_size, stays in memory (swap_tensor/utils.py:MIN_AIO_BYTES)."""
ALIGNMENT = 1024
"""Bytes that each of aio.intra_op_parallelism threads reads or writes at once (AIO_ALIGNED_BYTES)."""


def is_swappable(job: Job, size: int) -> bool:
    return size >= max(SMALLEST, job.strategy.aio_block_size)


def aligned(job: Job, size: int) -> int:
    return round_up(size, ALIGNMENT * job.strategy.aio_intra_op_parallelism)


def swapped(job: Job, elements: int) -> bool:
    """Whether a sub-group's optimizer states lie on NVMe."""
    offload = job.strategy.offload_optimizer
    size = DTYPE_BYTES[job.strategy.master] * elements
    return offload is not None and offload.device == "nvme" and is_swappable(job, size)


class SubGroup(NamedTuple):
    """Tensors that the optimizer updates together, as one rank has them."""

    members: list[int]
    elements: int
    swapped: bool
    """Master weights and gradients lie on NVMe."""
    by_torch: bool
    """Below `ratio`: torch's own optimizer updates it, on the GPU, or on the host where it is swapped all the same."""
    muon: bool
    """Muon updates it, with one state: its momentum."""

    @property
    def on_gpu(self) -> bool:
        return self.by_torch and not self.swapped

    def swapped_states(self, states: int) -> int:
        """How many of so many states are on NVMe: torch's own stay on the host, the swapper does not know them."""
        return 0 if self.by_torch else 1 if self.muon else states


def _updates_key(strategy: Strategy) -> Hashable:
    groups = groups_key(strategy), strategy.sub_group_size, strategy.optimizer == "muon"
    return groups, strategy.offload_optimizer, strategy.master, strategy.aio_block_size


@cached(_updates_key)
def optimized(job: Job) -> list[SubGroup]:
    """The sub-groups of the optimizer's step, in order."""
    pairs = zip(sub_group_members(job), sub_groups(job), strict=True)
    by_torch = below_ratio(job)
    return [
        SubGroup(members, size, swapped(job, size), at < by_torch, members[0] in matrices(job))
        for at, (members, size) in enumerate(pairs)
    ]


def on_gpu(job: Job) -> list[SubGroup]:
    """Those whose master weights and states the GPU holds."""
    return [group for group in optimized(job) if group.on_gpu]


def reads_twice(job: Job) -> bool:
    """Whether two modules read one parameter that lies on NVMe: a magnitude of DoRA's reads the weight of its layer."""
    tensors, adapter = job.model.tensors, job.model.adapter
    if not (adapter and adapter.use_dora):
        return False
    layers = {tensor.name.partition(MAGNITUDE)[0] for tensor in tensors if MAGNITUDE in tensor.name}
    return any(tensors[index].name.partition(".base_layer.")[0] in layers for index in swapped_parameters(job))


MAGNITUDE = ".lora_magnitude_vector."


def check_read_twice(job: Job) -> None:
    """Raise `ContradictionError` where DeepSpeed reads a parameter in a second time, and stops."""
    if reads_twice(job):
        raise ContradictionError(
            "offload_param nvme with use_dora: a magnitude reads the weight beside its layer, and DeepSpeed stops "
            "(already assigned swap buffer); write --offload-param cpu, or use_dora false"
        )


def check_buffers(job: Job) -> None:
    """Raises `ContradictionError` where DeepSpeed runs out of swap buffers, or a tensor exceeds one.

    A sub-group needs one for its master weights, each of its states and its gradients; the one read ahead as many
    more, the one still being written as many without gradients.
    """
    optimizer, params = job.strategy.offload_optimizer, job.strategy.offload_param
    tiles = [group for group in optimized(job) if group.swapped]
    if optimizer and tiles:
        states = state_bytes(job, job.strategy.master) // DTYPE_BYTES[job.strategy.master]
        # Muon's momentum is written back once more, and stops for want of buffers where two states would.
        written = [1 + group._replace(muon=False).swapped_states(states) for group in tiles]
        read = [count + 1 for count in written]
        ahead = [*read[1:], 0] if optimizer.pipeline_read else [0] * len(tiles)
        behind = [0, *written[:-1]] if optimizer.pipeline_write else [0] * len(tiles)
        needed = max(map(sum, zip(read, ahead, behind, strict=True)))
        if (optimizer.buffer_count or 4) < needed:
            raise ContradictionError(
                f"offload_optimizer: found buffer_count {optimizer.buffer_count or 4}, expected at least {needed} for "
                f'{job.strategy.optimizer} on NVMe; DeepSpeed stops at the first step, write "buffer_count": {needed}'
            )
    if optimizer and params and params.device == "nvme":
        _flat, outside = _in_memory(job)
        if any(group.on_gpu and group.members in outside for group in optimized(job)):
            raise ContradictionError(
                f"offload_optimizer: found ratio {optimizer.ratio} with parameters on NVMe beyond max_in_cpu, expected "
                f'1.0; DeepSpeed stops in initialize ("attempting to assign a gradient"), write "ratio": 1.0'
            )
    if params and params.device == "nvme":
        w, largest = job.strategy.element_bytes, ceil_div(job.model.largest.elements, job.ranks)
        if largest > params.buffer_size and is_swappable(job, w * largest):
            raise ContradictionError(
                f"offload_param: found buffer_size {params.buffer_size:,}, expected at least {largest:,}, the largest "
                f'tensor of a rank; DeepSpeed stops in initialize, write "buffer_size": {largest}'
            )


def swap_buffers(job: Job) -> tuple[int, ...]:
    """The optimizer's: buffer_count of the largest sub-group in the master weights' dtype."""
    offload = job.strategy.offload_optimizer
    assert offload is not None
    return (aligned(job, DTYPE_BYTES[job.strategy.master] * max(sub_groups(job))),) * (offload.buffer_count or 4)


def parameter_blocks(job: Job) -> Iterator[HostAllocation]:
    """Buffers of the parameter swapper, and partitions that stay in memory.

    The buffer for writing partitions back is as large as if they were whole tensors.
    """
    dtype = job.strategy.dtype
    offload, w = job.strategy.offload_param, job.strategy.element_bytes
    assert offload is not None
    buffers = parameter_buffers(job) * aligned(job, w * offload.buffer_size)
    yield HostAllocation("parameter swap buffers", dtype, (buffers,), EXACT)
    flat, outside = _in_memory(job)
    yield HostAllocation("parameters kept in memory", dtype, tuple(w * size for size in flat if size), TORCH)
    yield HostAllocation("no room for parameters", dtype, (w,) * flat.count(0))
    pin = TORCH if offload.pin_memory else PAGEABLE
    apart = [*outside, sorted(job.model.frozen)]
    kept = [w * shard for members in apart for shard in _shards(job, members) if not is_swappable(job, w * shard)]
    yield HostAllocation("small parameters kept in memory", dtype, tuple(kept), pin)
    if outside:
        reused = max(outside, key=lambda members: sum(_shards(job, members)))
        buffer = sum(aligned(job, w * tensor_sizes(job)[index]) for index in reused)
        yield HostAllocation("parameter write buffer", dtype, (buffer,), EXACT)
    yield HostAllocation("stand-in for swapped parameters", "float16", (2,))


def buffer_count(params: Offload) -> int:
    """Buffers between NVMe and the GPU: offload_param.buffer_count, 5 where it is not stated."""
    return params.buffer_count or 5


def parameter_buffers(job: Job) -> int:
    """Buffers for partitions that are read from NVMe; none where they stay in the host's memory."""
    params = job.strategy.offload_param
    return buffer_count(params) if params and params.device == "nvme" else 0


def swapped_parameters(job: Job) -> list[int]:
    """Tensors whose partitions live on NVMe: large enough, and in a sub-group that max_in_cpu does not keep; of the
    frozen it keeps none.
    """
    offload, w = job.strategy.offload_param, job.strategy.element_bytes
    if offload is None or offload.device != "nvme":
        return []
    _flat, outside = _in_memory(job)
    return [
        index for members in (*outside, sorted(job.model.frozen))
        for index, shard in zip(members, _shards(job, members), strict=True)
        if is_swappable(job, w * shard)
    ]  # fmt: skip


def parameter_bytes(job: Job, tensors: Iterable[int]) -> int:
    """What is read or written for these tensors' partitions."""
    w, shards = job.strategy.element_bytes, shard_sizes(job)
    return sum(aligned(job, w * shards[index]) for index in tensors)


def _in_memory(job: Job) -> tuple[list[int], list[list[int]]]:
    """Elements of each parameter group's flat memory under max_in_cpu, and the sub-groups that do not fit into it."""
    offload = job.strategy.offload_param
    assert offload is not None
    flat: list[int] = []
    seen = 0
    for members in group_members(job):
        size = sum(_shards(job, members))
        room = max(0, offload.max_in_cpu - seen) if seen + size > offload.max_in_cpu else size
        flat.append(room)
        seen += size
    outside: list[list[int]] = []
    group, filled = 0, 0
    owner = {index: at for at, members in enumerate(group_members(job)) for index in members}
    for members in sub_group_members(job):
        if owner[members[0]] != group:
            group, filled = owner[members[0]], 0
        size = sum(_shards(job, members))
        if filled + size > max(flat[group], 1):
            outside.append(members)
        filled += size
    return flat, outside


def _shards(job: Job, members: list[int]) -> list[int]:
    return list(map(shard_sizes(job).__getitem__, members))


def optimizer_files(job: Job) -> tuple[int, ...]:
    """Master weights and states, a file each for a sub-group, written whole in aligned pieces."""
    master = DTYPE_BYTES[job.strategy.master]
    states = state_bytes(job, job.strategy.master) // master
    files = [(aligned(job, master * g.elements), g.swapped_states(states)) for g in optimized(job) if g.swapped]
    return tuple(size for size, count in files for _ in range(1 + count))


def kept_on_gpu(job: Job) -> frozenset[int]:
    """Tensors of swapped sub-groups whose gradients are not written whole: what is left keeps all of it on the GPU.

    A gradient is cut where the alignment ends; the rest, and one that is too small, is a view of the tensor on the GPU
    until the optimizer reads it (optimizer_utils.py:_adjust_for_misaligned_lengths, unswapped_gradients).
    """
    master, block = DTYPE_BYTES[job.strategy.master], ALIGNMENT * job.strategy.aio_intra_op_parallelism
    shards = shard_sizes(job)
    sizes = {index: master * shards[index] for index in swapped_tensors(job)}
    return frozenset(index for index, size in sizes.items() if size % block or not is_swappable(job, size))


def swapped_tensors(job: Job) -> list[int]:
    """Tensors whose master weights lie on NVMe."""
    return [index for group in optimized(job) if group.swapped for index in group.members]


def gradient_files(job: Job) -> tuple[int, ...]:
    """Gradients of tensors in swapped sub-groups, as far as they are aligned; what remains stays in memory."""
    master = DTYPE_BYTES[job.strategy.master]
    result = [master * shard for shard in _shards(job, swapped_tensors(job))]
    block = ALIGNMENT * job.strategy.aio_intra_op_parallelism
    return tuple(size // block * block for size in result if is_swappable(job, size // block * block))


def parameter_files(job: Job) -> tuple[int, ...]:
    """Every partition that is large enough, also of those that max_in_cpu then keeps in memory.

    zero.Init writes a head's own weight before it is tied to the embedding's; the file stays, unread.
    """
    w = job.strategy.element_bytes
    sizes = [*tensor_sizes(job), *(job.model.tied if job.strategy.builds_partitioned else ())]
    if not (job.strategy.offload_param and job.strategy.offload_param.device == "nvme"):
        return ()
    shards = [w * ceil_div(size, job.ranks) for size in sizes]
    return tuple(aligned(job, shard) for shard in shards if is_swappable(job, shard))
