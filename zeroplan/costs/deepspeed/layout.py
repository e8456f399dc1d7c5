"""How DeepSpeed cuts a model over the ranks: flat groups at stages 1 and 2, tensor by tensor at stage 3.

DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py (__init__, _round_robin_reorder, initialize_gradient_partition),
parameter_offload.py (mark_persistent_parameters), stage3.py (_create_fp16_sub_groups). Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.deepspeed.muon import halves, matrices
from zeroplan.costs.deepspeed.once import no_part, once
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

ALIGNED_BYTES = 16
"""What zero_optimization.parameter_alignment rounds each tensor's start up to."""
START_ALIGNMENT = 2
"""nccl_start_alignment_factor: all-gather send buffers start at 4 bytes."""


class Group(NamedTuple):
    """One parameter group: tensors by index into the model's, with the pieces that ranks own."""

    order: tuple[int, ...]
    """The group's tensors as the optimizer has them."""
    flat: int
    """Elements of the flat buffer, padding included."""
    partition: int
    """Elements of one rank's partition."""
    pieces: dict[int, list[tuple[int, int]]]
    """Tensor -> (owner, elements) of each piece, from its start to its end."""
    muon: bool = False
    """Muon updates it."""


def group(
    indices: Sequence[int], sizes: Sequence[int], ranks: int, *, round_robin: bool = False, alignment: int = 1
) -> Group:
    """Lay the tensors `indices` out over `ranks`; each but the first starts at a multiple of `alignment`."""
    laid = list(indices)
    if round_robin:  # tensor i goes to list i mod ranks, and the lists are joined
        laid = [index for rank in range(ranks) for index in laid[rank::ranks]]
    end = 0
    for index in laid:
        end = round_up(end, alignment) + sizes[index]
    flat = round_up(end, START_ALIGNMENT * ranks)
    share = flat // ranks
    pieces: dict[int, list[tuple[int, int]]] = {}
    start = 0
    for index in laid:
        end = start + sizes[index]
        owners = range(start // share, (end - 1) // share + 1)
        pieces[index] = [(o, min(end, (o + 1) * share) - max(start, o * share)) for o in owners]
        start = round_up(end, alignment)
    return Group(tuple(indices), flat, share, pieces)


def group_members(job: Job) -> list[list[int]]:
    """Tensors of each parameter group; under Muon its matrices and Adam's tensors are groups of their own."""
    given = _given_groups(job)
    if job.strategy.optimizer == "muon":
        return [half for members in given for half in halves(job, members)]
    return given


def _given_groups(job: Job) -> list[list[int]]:
    """One group, decay and no decay, or dealt out in turn."""
    every = range(len(job.model.tensors))
    count = job.strategy.parameter_groups
    if count == 1:
        return [list(every)]
    if count == 2:
        decay = [index for index in every if decays(job, index)]
        return [members for members in (decay, [i for i in every if not decays(job, i)]) if members]
    return [members for start in range(count) if (members := list(every[start::count]))]


def decays(job: Job, index: int) -> bool:
    """Whether the Trainer gives a tensor weight decay: matrices, but no biases and nothing of a norm."""
    tensor = job.model.tensors[index]
    return len(tensor.shape) > 1 and not tensor.name.endswith("bias")


def decides_groups(strategy: Strategy) -> Hashable:
    return strategy.parameter_groups, strategy.optimizer == "muon" and (True, strategy.builds_partitioned)


def _decides_layout(strategy: Strategy) -> Hashable:
    aligned = strategy.parameter_alignment and strategy.element_bytes
    return decides_groups(strategy), strategy.round_robin_gradients, aligned


@once(_decides_layout)
def flat_groups(job: Job) -> list[Group]:
    """The flat groups of stages 1 and 2."""
    sizes, strategy = tensor_sizes(job), job.strategy
    alignment = ALIGNED_BYTES // strategy.element_bytes if strategy.parameter_alignment else 1
    return [
        group(members, sizes, job.ranks, round_robin=strategy.round_robin_gradients, alignment=alignment)._replace(
            muon=members[0] in matrices(job)
        )
        for members in group_members(job)
    ]


def secondary_ranks(job: Job) -> int:
    """Ranks that share secondary partitions of the parameters (hpZ); 0 when there are none.

    Raises `ContradictionError` where they do not divide the world, or partitions would have to lie on NVMe.
    """
    size, offload = job.strategy.hpz_partition_size, job.strategy.offload_param
    if job.strategy.stage < 3 or size <= 1:
        return 0
    size = min(size, job.ranks)
    if job.ranks % size:
        raise ContradictionError(
            f"zero_hpz_partition_size: found {size}, expected a divisor of the {job.ranks} ranks; "
            "write the GPUs of a node"
        )
    if offload and offload.device == "nvme":
        raise ContradictionError(
            "zero_hpz_partition_size: found parameters on NVMe, where DeepSpeed cannot put a second copy; "
            'write "offload_param": {"device": "cpu"}'
        )
    return size


@once(lambda strategy: (strategy.stage, strategy.hpz_partition_size, strategy.offload_param))
def secondary_sizes(job: Job) -> list[int]:
    """Elements of one rank's secondary partition of each tensor; empty when there are none."""
    shared = secondary_ranks(job)
    return [round_up(size, job.ranks) // shared for size in tensor_sizes(job)] if shared else []


@once(lambda strategy: (strategy.low, strategy.communication))
def communication_dtypes(job: Job) -> list[str]:
    """The dtype in which each tensor's gradient travels."""
    low, other = job.strategy.low, job.strategy.communication
    return [low if low and tensor.linear else other for tensor in job.model.tensors]


def bucket_dtypes(job: Job) -> list[str]:
    """Gradients have a bucket for each dtype that they travel in, reduced in this order."""
    return sorted(set(communication_dtypes(job)))


@once(no_part)
def tensor_sizes(job: Job) -> list[int]:
    return [tensor.elements for tensor in job.model.tensors]


@once(_decides_layout)
def own_elements(job: Job) -> list[int]:
    """Elements of the whole tensors that touch each rank's partitions.

    Muon's count four times: there are gradients, momentum, its staged copy and updates of them.
    """
    sizes, groups = tensor_sizes(job), flat_groups(job)
    touched = [0] * (job.ranks + 1)
    for layout in groups:
        times = 4 if layout.muon else 1
        for index, pieces in layout.pieces.items():
            touched[pieces[0][0]] += times * sizes[index]
            touched[pieces[-1][0] + 1] -= times * sizes[index]
    return list(accumulate(touched[:-1]))


def rank_of(job: Job) -> int:
    """The rank that is looked at: the one asked for, else that whose partitions touch most (all alike at stage 3)."""
    if job.rank is not None:
        return job.rank
    if job.strategy.stage == 3:
        return 0
    touched = own_elements(job)
    return touched.index(max(touched))


class Piece(NamedTuple):
    group: int
    elements: int
    """Of the tensor, those in this rank's partition."""


@once(_decides_layout)
def own_pieces(job: Job) -> dict[int, Piece]:
    """The tensors that touch this rank's partitions."""
    rank = rank_of(job)
    return {
        index: Piece(group, elements)
        for group, layout in enumerate(flat_groups(job))
        for index, pieces in layout.pieces.items()
        for owner, elements in pieces
        if owner == rank
    }


@once(lambda strategy: (_decides_layout(strategy), strategy.keeps_fp32_partition))
def fp32_groups(job: Job) -> frozenset[int]:
    """Groups whose 16-bit gradients are added up in an fp32 partition: not those of which Muon needs them whole."""
    if not job.strategy.keeps_fp32_partition:
        return frozenset()
    whole = {piece.group for index, piece in own_pieces(job).items() if index in matrices(job)}
    return frozenset(range(len(flat_groups(job)))) - whole


@once(no_part)
def shard_sizes(job: Job) -> list[int]:
    """Elements of one rank's partition of each tensor: stage 3 splits every one by itself, rounded up."""
    ranks = job.ranks
    return [ceil_div(size, ranks) for size in tensor_sizes(job)]


class OwnShares(NamedTuple):
    """Elements of this rank's partition of each tensor at stage 3; none where it is padding alone."""

    padded: list[int]
    cut: list[int]
    """At the tensor's end."""


@once(no_part)
def own_shares(job: Job) -> OwnShares:
    sizes, shares, rank = tensor_sizes(job), shard_sizes(job), rank_of(job)
    left = [size - rank * share for size, share in zip(sizes, shares, strict=True)]
    return OwnShares(
        [share if own > 0 else 0 for own, share in zip(left, shares, strict=True)],
        [max(0, min(share, own)) for own, share in zip(left, shares, strict=True)],
    )


@once(no_part)
def shard_elements(job: Job) -> int:
    """P: of all tensors."""
    return sum(shard_sizes(job))


@once(lambda strategy: (strategy.param_persistence_threshold, strategy.model_persistence_threshold))
def small_tensors(job: Job) -> list[int]:
    """Those that stage 3 never releases, in order, while their sum stays under the model's threshold."""
    chosen: list[int] = []
    held = 0
    for index, size in enumerate(tensor_sizes(job)):
        small = size <= job.strategy.param_persistence_threshold
        if small and held + size <= job.strategy.model_persistence_threshold:
            chosen.append(index)
            held += size
    return chosen


@once(
    lambda strategy: (
        strategy.param_persistence_threshold, strategy.model_persistence_threshold,
        strategy.offload_param is not None, strategy.allgather_sequential,
    )
)  # fmt: skip
def persistent_tensors(job: Job) -> list[int]:
    """Small tensors that stay gathered at stage 3, in order."""
    chosen = small_tensors(job)
    # A lone rank's partition is the tensor itself; DeepSpeed still copies it where it gathers tensor by tensor.
    copies = job.ranks > 1 or job.strategy.offload_param or job.strategy.allgather_sequential or len(chosen) == 1
    return chosen if copies else []


@once(lambda strategy: (decides_groups(strategy), strategy.sub_group_size))
def sub_group_members(job: Job) -> list[list[int]]:
    """A group's tensors are collected until their partitions reach sub_group_size."""
    found: list[list[int]] = []
    shards, most = shard_sizes(job), job.strategy.sub_group_size
    for members in group_members(job):
        gathered: list[int] = []
        filled = 0
        for index in members:
            gathered.append(index)
            filled += shards[index]
            if filled >= most:
                found.append(gathered)
                gathered, filled = [], 0
        if gathered:
            found.append(gathered)
    return found


@once(lambda strategy: (decides_groups(strategy), strategy.sub_group_size))
def sub_groups(job: Job) -> list[int]:
    """Elements of each sub-group's partition."""
    shards = shard_sizes(job)
    return [sum([shards[index] for index in members]) for members in sub_group_members(job)]


def below_ratio(job: Job) -> int:
    """How many sub-groups, the first ones, are not for the host to update: all, or with offload those under `ratio`."""
    count, offload = len(sub_groups(job)), job.strategy.offload_optimizer
    return count if offload is None else int((1 - offload.ratio) * count)
