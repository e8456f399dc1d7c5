"""How DeepSpeed cuts a model's tensors over the ranks. All sizes in elements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.specs.job import Job
from zeroplan.specs.model import Tensor


def flat_elements(job: Job) -> int:
    """F: all parameters in one buffer, padded so that each rank's half-aligned share is equal.

    DeepSpeed runtime/zero/stage_1_and_2.py: `nccl_start_alignment_factor` (2) times the ranks.
    """
    return round_up(job.model.parameters, 2 * job.ranks)


def shard_elements(job: Job) -> int:
    """P: at stage 3 every tensor is split over the ranks by itself, rounded up."""
    return sum(ceil_div(tensor.elements, job.ranks) for tensor in job.model.tensors)


def persistent_tensors(job: Job) -> list[Tensor]:
    """Small tensors that stay gathered at stage 3, in order, while their sum stays under the model's threshold.

    DeepSpeed runtime/zero/parameter_offload.py:mark_persistent_parameters; one rank gathers nothing.
    """
    chosen: list[Tensor] = []
    held = 0
    if job.ranks == 1:
        return chosen
    for tensor in job.model.tensors:
        small = tensor.elements <= job.strategy.param_persistence_threshold
        if small and held + tensor.elements <= job.strategy.model_persistence_threshold:
            chosen.append(tensor)
            held += tensor.elements
    return chosen


def own_elements(job: Job) -> int:
    """O: whole tensors that touch one rank's partition at stages 1 and 2, for the rank where they are largest."""
    share = flat_elements(job) // job.ranks
    touched = [0] * (job.ranks + 1)
    start = 0
    for tensor in job.model.tensors:
        touched[start // share] += tensor.elements
        start += tensor.elements
        touched[(start - 1) // share + 1] -= tensor.elements
    return max(accumulate(touched[:-1]))


def reduce_calls(tensors: Sequence[Tensor], bucket: int) -> int:
    """Buckets that a pass over the gradients closes: one before the tensor that would overflow it.

    DeepSpeed runtime/zero/stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads.
    """
    calls, filled = 0, 0
    for tensor in reversed(tensors):
        if filled and filled + tensor.elements > bucket:
            calls, filled = calls + 1, 0
        filled += tensor.elements
    return calls + (filled > 0)


def largest_group(job: Job) -> int:
    """The largest sub-group's partition at stage 3: tensors are collected until sub_group_size is reached.

    DeepSpeed runtime/zero/stage3.py:_create_fp16_sub_groups.
    """
    largest, filled = 0, 0
    for tensor in job.model.tensors:
        filled += ceil_div(tensor.elements, job.ranks)
        if filled >= job.strategy.sub_group_size:
            largest, filled = max(largest, filled), 0
    return max(largest, filled)
