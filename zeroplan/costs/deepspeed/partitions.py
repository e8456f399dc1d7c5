"""How DeepSpeed cuts a model over the ranks at stage 3: tensor by tensor, and sub-groups of the partitions.

DeepSpeed 0.19.8 runtime/zero/parameter_offload.py (mark_persistent_parameters), stage3.py (_create_fp16_sub_groups),
partition_parameters.py. Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.cache import cached, no_key
from zeroplan.costs.deepspeed.layout import group_members, groups_key, rank_of, tensor_sizes
from zeroplan.errors import ContradictionError
from zeroplan.ledger import DTYPE_BYTES
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


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


@cached(lambda strategy: (strategy.stage, strategy.hpz_partition_size, strategy.offload_param))
def secondary_sizes(job: Job) -> list[int]:
    """Elements of one rank's secondary partition of each tensor; empty when there are none."""
    shared = secondary_ranks(job)
    return [padded // shared for padded in padded_sizes(job)] if shared else []


@cached(lambda strategy: (strategy.stage, strategy.hpz_partition_size, strategy.offload_param))
def transient_secondary_sizes(job: Job) -> list[int]:
    """The ones of these that each step drops and makes anew, zeros for others: those of frozen tensors stay."""
    return [0 if index in job.model.frozen else size for index, size in enumerate(secondary_sizes(job))]


@cached(no_key)
def shard_sizes(job: Job) -> list[int]:
    """Elements of one rank's partition of each tensor: stage 3 splits every one by itself, rounded up."""
    ranks = job.ranks
    return [ceil_div(size, ranks) for size in tensor_sizes(job)]


@cached(no_key)
def padded_sizes(job: Job) -> list[int]:
    """Elements of all ranks' partitions of each tensor."""
    ranks = job.ranks
    return [ranks * share for share in shard_sizes(job)]


def dtypes_key(strategy: Strategy) -> Hashable:
    return strategy.dtype, strategy.stage == 3 and strategy.builds_partitioned


@cached(dtypes_key)
def partition_dtypes(job: Job) -> list[str]:
    """Dtype of each tensor's partition at stage 3, in which it is gathered: the training precision's, a packed weight's
    own, or that of adapters.
    """
    training, of_adapters, low_rank = job.strategy.dtype, job.adapter_dtype, frozenset(job.model.low_rank)
    return [
        of_adapters if index in low_rank else (tensor.packed and tensor.dtype) or training
        for index, tensor in enumerate(job.model.tensors)
    ]


def trained_dtype(job: Job) -> str:
    """Of the first parameter that trains: DeepSpeed takes it for all of them (runtime/zero/stage3.py: self.dtype)."""
    return partition_dtypes(job)[job.model.trainable[0]]


MIXED = "mixed"


@cached(dtypes_key)
def gathered_dtype(job: Job) -> str:
    """What tensors are counted in that are gathered together: their dtype, or bytes where they have several."""
    dtypes = set(partition_dtypes(job))
    return dtypes.pop() if len(dtypes) == 1 else MIXED


@cached(dtypes_key)
def gathered_widths(job: Job) -> list[int]:
    """Of each tensor's elements, how many of `gathered_dtype` one is; empty where each is one."""
    if gathered_dtype(job) != MIXED:
        return []
    return [DTYPE_BYTES[dtype] for dtype in partition_dtypes(job)]


UNPLANNED = "it is not planned"


def refusal(job: Job) -> str:
    """Why stage 3 does not run with this job's dtypes, or is not planned, and what to write; empty where it is."""
    strategy, dtypes = job.strategy, partition_dtypes(job)
    if gathered_dtype(job) != MIXED or strategy.stage < 3:
        return ""
    if len({dtypes[index] for index in job.model.trainable}) > 1:
        stops = "DeepSpeed stops in initialize, partitions of what trains need one dtype"
        stops = "that is not planned with parameters on the host" if strategy.offload_param else stops
        other = next(job.model.tensors[at].name for at in job.model.trainable if at not in job.model.low_rank)
        return (
            f"stage 3 under deepspeed.zero.Init with adapters in float32 (autocast_adapter_dtype) beside {other} "
            f"in {strategy.dtype}, which trains too: {stops}; write --adapter-dtype training for "
            "autocast_adapter_dtype=False, or a lower --stage"
        )
    nvme = strategy.offload_param and strategy.offload_param.device == "nvme"
    asked = {
        "offload_param nvme": nvme and "DeepSpeed reads all back in one, and what was in another is lost",
        "zero_quantized_weights": strategy.quantized_weights and UNPLANNED,
        "torch_autocast": strategy.autocast_dtype and UNPLANNED,
    }
    several = f"parameters of several dtypes at stage 3 ({', '.join(sorted(set(dtypes)))})"
    return next((f"{what} with {several}: {why}; leave it out" for what, why in asked.items() if why), "")


def by_dtype(job: Job, elements: Mapping[int, int]) -> dict[str, int]:
    """Elements of tensors, in sum of those whose partitions have the same dtype."""
    dtypes, result = partition_dtypes(job), dict[str, int]()
    for index, count in elements.items():
        result[dtypes[index]] = result.get(dtypes[index], 0) + count
    return result


def in_gathered_dtype(job: Job, elements: Sequence[int], tensors: Iterable[int] | None = None) -> int:
    """The sum of all tensors' elements, or of some tensors', as `gathered_dtype` counts them."""
    widths, chosen = gathered_widths(job), range(len(elements)) if tensors is None else tensors
    return sum(elements[index] * (widths[index] if widths else 1) for index in chosen)


class OwnShares(NamedTuple):
    """Elements of this rank's partition of each tensor at stage 3; none where it is padding alone."""

    padded: list[int]
    cut: list[int]
    """At the tensor's end."""


@cached(no_key)
def own_shares(job: Job) -> OwnShares:
    sizes, shares, rank = tensor_sizes(job), shard_sizes(job), rank_of(job)
    left = [size - rank * share for size, share in zip(sizes, shares, strict=True)]
    return OwnShares(
        [share if own > 0 else 0 for own, share in zip(left, shares, strict=True)],
        [max(0, min(share, own)) for own, share in zip(left, shares, strict=True)],
    )


@cached(no_key)
def shard_elements(job: Job) -> int:
    """P: of all tensors."""
    return sum(shard_sizes(job))


@cached(no_key)
def trainable_shard_elements(job: Job) -> int:
    """Elements of those that train: what gradient partitions have."""
    return sum(map(shard_sizes(job).__getitem__, job.model.trainable))


@cached(lambda strategy: (strategy.param_persistence_threshold, strategy.model_persistence_threshold))
def small_tensors(job: Job) -> list[int]:
    """Those that stage 3 never releases, in order, while their sum stays under the model's threshold."""
    chosen: list[int] = []
    persistent = 0
    for index, size in enumerate(tensor_sizes(job)):
        small = size <= job.strategy.param_persistence_threshold
        if small and persistent + size <= job.strategy.model_persistence_threshold:
            chosen.append(index)
            persistent += size
    return chosen


def persistence_key(strategy: Strategy) -> Hashable:
    return (
        strategy.param_persistence_threshold, strategy.model_persistence_threshold,
        strategy.offload_param is not None, strategy.allgather_sequential,
    )  # fmt: skip


@cached(persistence_key)
def persistent_tensors(job: Job) -> list[int]:
    """Small tensors that stay gathered at stage 3, in order."""
    chosen = small_tensors(job)
    # A lone rank's partition is the tensor itself; DeepSpeed still copies it where it gathers tensor by tensor.
    copies = job.ranks > 1 or job.strategy.offload_param or job.strategy.allgather_sequential or len(chosen) == 1
    return chosen if copies else []


@cached(lambda strategy: (groups_key(strategy), strategy.sub_group_size))
def sub_group_members(job: Job) -> list[list[int]]:
    """A group's tensors are collected until their partitions reach sub_group_size."""
    result: list[list[int]] = []
    shards, most = shard_sizes(job), job.strategy.sub_group_size
    for members in group_members(job):
        gathered: list[int] = []
        filled = 0
        for index in members:
            gathered.append(index)
            filled += shards[index]
            if filled >= most:
                result.append(gathered)
                gathered, filled = [], 0
        if gathered:
            result.append(gathered)
    return result


@cached(lambda strategy: (groups_key(strategy), strategy.sub_group_size))
def sub_groups(job: Job) -> list[int]:
    """Elements of each sub-group's partition."""
    shards = shard_sizes(job)
    return [sum([shards[index] for index in members]) for members in sub_group_members(job)]


def below_ratio(job: Job) -> int:
    """How many sub-groups, the first ones, are not for the host to update: all, or with offload those under `ratio`."""
    count, offload = len(sub_groups(job)), job.strategy.offload_optimizer
    return count if offload is None else int((1 - offload.ratio) * count)


def replaced(job: Job) -> frozenset[int]:
    """8-bit weights: forward ends with the module's own codes in their place (bitsandbytes nn/modules.py)."""
    if not job.model.in_8_bit:
        return frozenset()
    return frozenset(index for index, tensor in enumerate(job.model.tensors) if tensor.packed)


def persistent_elements(job: Job, *, replaces: bool = False) -> dict[str, int]:
    """Elements of parameters that stay gathered, padded to all ranks, by dtype; `replaces`: those that forward does."""
    padded, others = padded_sizes(job), replaced(job)
    return by_dtype(job, {index: padded[index] for index in persistent_tensors(job) if (index in others) == replaces})
