"""How DeepSpeed lays a model out over the ranks: parameter groups, and their flat tensors at stages 1 and 2.

DeepSpeed 0.19.8 runtime/zero/stage_1_and_2.py (__init__, _round_robin_reorder, initialize_gradient_partition). Sizes
are elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import accumulate
from typing import NamedTuple

from zeroplan.arithmetic import round_up
from zeroplan.costs.cache import cached, no_key, order_free_key
from zeroplan.costs.deepspeed.muon import halves, matrices
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
    """One group, decay and no decay, or dealt out in turn; of what trains alone (_get_trainable_parameter_groups)."""
    every = job.model.trainable
    count = job.strategy.parameter_groups
    if count == 1:
        return [list(every)]
    if count == 2:
        decay = [index for index in every if decays(job, index)]
        return [members for members in (decay, [i for i in every if not decays(job, i)]) if members]
    return [members for start in range(count) if (members := list(every[start::count]))]


def decays(job: Job, index: int) -> bool:
    """Whether the Trainer gives a tensor weight decay: matrices and an adapter's magnitudes, but no biases and nothing
    of a norm.
    """
    tensor = job.model.tensors[index]
    of_adapter = ".lora_" in tensor.name
    return (len(tensor.shape) > 1 or of_adapter) and not tensor.name.endswith("bias")


def groups_key(strategy: Strategy) -> Hashable:
    return strategy.parameter_groups, strategy.optimizer == "muon" and (True, strategy.builds_partitioned)


def layout_key(strategy: Strategy) -> Hashable:
    aligned = strategy.parameter_alignment and strategy.element_bytes
    return groups_key(strategy), strategy.round_robin_gradients, aligned


@cached(layout_key)
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


@cached(lambda strategy: (strategy.autocast_dtype, strategy.communication))
def communication_dtypes(job: Job) -> list[str]:
    """The dtype in which each tensor's gradient travels, if it trains."""
    autocast_dtype, other = job.strategy.autocast_dtype, job.strategy.communication
    return [autocast_dtype if autocast_dtype and tensor.linear else other for tensor in job.model.tensors]


def bucket_dtypes(job: Job) -> list[str]:
    """Gradients have a bucket for each dtype that they travel in, reduced in this order."""
    dtypes = communication_dtypes(job)
    return sorted({dtypes[index] for index in job.model.trainable})


@cached(no_key)
def tensor_sizes(job: Job) -> list[int]:
    """Elements of all tensors, trainable or not, by their index."""
    return [tensor.elements for tensor in job.model.tensors]


def trainable_sizes(job: Job) -> list[int]:
    """Elements of those that train, in order."""
    return list(map(tensor_sizes(job).__getitem__, job.model.trainable))


@cached(layout_key)
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


class PartitionSlice(NamedTuple):
    group: int
    elements: int
    """Elements of the tensor in this rank's partition."""


@cached(layout_key)
def own_pieces(job: Job) -> dict[int, PartitionSlice]:
    """The tensors that touch this rank's partitions."""
    rank = rank_of(job)
    return {
        index: PartitionSlice(group, elements)
        for group, layout in enumerate(flat_groups(job))
        for index, pieces in layout.pieces.items()
        for owner, elements in pieces
        if owner == rank
    }


@cached(order_free_key)
def own_matrices(job: Job) -> dict[int, tuple[int, ...]]:
    """Those of them that Muon updates, by their group and in its order."""
    result: dict[int, tuple[int, ...]] = {}
    for index, piece in own_pieces(job).items():
        if index in matrices(job):
            result[piece.group] = (*result.get(piece.group, ()), index)
    return result


@cached(lambda strategy: (layout_key(strategy), strategy.keeps_fp32_partition))
def fp32_groups(job: Job) -> frozenset[int]:
    """Groups whose 16-bit gradients are added up in an fp32 partition: not those of which Muon needs them whole."""
    if not job.strategy.keeps_fp32_partition:
        return frozenset()
    muons = matrices(job)
    whole = {piece.group for index, piece in own_pieces(job).items() if index in muons}
    return frozenset(range(len(flat_groups(job)))) - whole
