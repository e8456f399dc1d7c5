"""ZeRO++'s quantized collectives: codes and their scales, as DeepSpeed 0.19.8 sizes them.

Weights (qwZ) follow runtime/zero/partition_parameters.py (CUDAQuantizer, _all_gather_sequential,
_all_gather_coalesced), gradients (qgZ) runtime/comm/coalesced_collectives.py (all_to_all_quant_reduce). What the CUDA
kernels need beside for themselves is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.allocations import Variables
from zeroplan.costs.deepspeed.events import Gather
from zeroplan.costs.deepspeed.partitions import secondary_sizes, shard_sizes
from zeroplan.errors import ContradictionError
from zeroplan.formulas import transient_stage_3 as forms
from zeroplan.specs.job import Job

TARGET_GROUP = 8000
"""Elements that share one scale, about."""


class CollectiveCall(NamedTuple):
    """One collective among so many ranks."""

    kind: str
    elements: int
    dtype: str
    ranks: int


def scales(elements: int) -> int:
    """Groups of a quantized partition, each with one scale: they divide it into multiples of 8.

    Raises `ContradictionError` for a partition that is no multiple of 8.
    """
    if elements % 8:
        raise ContradictionError(
            f"zero_quantized_weights: found a partition of {elements:,} elements to gather, expected a multiple of 8; "
            'DeepSpeed stops there, write "zero_quantized_weights": false'
        )
    groups = ceil_div(elements, TARGET_GROUP)
    while elements % (8 * groups):
        groups += 1
    while elements % (16 * groups) == 0 and elements / groups > TARGET_GROUP:
        groups *= 2
    return groups


def check_partitions(job: Job) -> None:
    """The run's first micro-step gathers each module's tensors by themselves, the persistent too; one rank gathers and
    quantizes nothing.

    Raises `ContradictionError` where DeepSpeed cannot quantize them.
    """
    if job.ranks == 1:
        return
    shares = secondary_sizes(job) or shard_sizes(job)
    for hook in job.execution.forward:
        if hook.enters and hook.tensors:
            scales(sum(shares[index] for index in hook.tensors))


def gathered(gather: Gather) -> Iterator[CollectiveCall]:
    """A gather of 8-bit codes, and one of their scales."""
    yield CollectiveCall("all_gather", gather.elements, "int8", gather.ranks)
    yield CollectiveCall("all_gather", scales(gather.elements // gather.ranks) * gather.ranks, "float32", gather.ranks)


def quantizes_gradients(job: Job) -> bool:
    """On one node nothing changes."""
    return job.strategy.quantized_gradients and job.cluster.nodes > 1


def reduced(job: Job, index: int) -> Iterator[CollectiveCall]:
    """A gradient's two all-to-alls of 4-bit codes, within the node and between nodes, each with its scales.

    Vectors, and what twice the ranks do not divide, are reduce-scattered as ever.
    """
    tensor, ranks, inside = job.model.tensors[index], job.ranks, job.cluster.gpus_per_node
    size = tensor.elements
    if len(tensor.shape) == 1 or size % (2 * ranks):
        yield CollectiveCall("reduce_scatter", round_up(size, ranks), job.strategy.communication, ranks)
        return
    groups = max(*tensor.shape[:2], ranks)
    yield CollectiveCall("all_to_all", size // 2, "int8", inside)
    yield CollectiveCall("all_to_all", groups, "float32", inside)
    yield CollectiveCall("all_to_all", size // 2 // inside, "int8", job.cluster.nodes)
    yield CollectiveCall("all_to_all", groups // inside, "float32", job.cluster.nodes)


def send_codes(variables: Variables, parts: list[CollectiveCall]) -> None:
    """A gradient's codes and their scales, out and in: within the node, then, of what is added up there, beyond it."""
    for place, sent in (("within", parts[:2]), ("beyond", parts[2:])):
        codes, scales = [(forms.quantized_gradients, part.dtype, part.elements) for part in sent]
        variables.put(f"out {place}", codes, scales)
        variables.put(f"codes in {place}", codes)
        variables.put(f"scales in {place}", scales)
    _kind, received, *_ = parts[2]
    variables.put("partitions", (forms.quantized_partitions, "float16", 2 * received))
