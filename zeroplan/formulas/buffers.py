"""Working memory beside the states: buckets, gathered parameters, gradients in flight, copies of the step."""

from __future__ import annotations


def reduce_bucket(bucket: int, w: int, copies: int) -> int:
    """c·w·B -- the buffer gradients are copied into, two with overlap_comm [DeepSpeed runtime/zero/stage_1_and_2.py].

    reduce_bucket_size counts elements: 5e8 of them are 1 GB in 16 bit, whatever the model's size.
    """
    return copies * w * bucket


def whole_gradients(psi: int, g: int) -> int:
    """g·Ψ -- all gradients alive at the end of backward [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return g * psi


def own_gradients(own: int, g: int) -> int:
    """g·O -- whole tensors that touch this rank's partition wait for the step [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return g * own


def gathered_parameters(live: int, w: int) -> int:
    """w·V -- parameters gathered for the layers at work and prefetched [DeepSpeed
    runtime/zero/partitioned_param_coordinator.py].
    """
    return w * live


def largest_gradient(largest: int, g: int) -> int:
    """g·Λ -- the largest tensor's gradient on its way to the bucket [DeepSpeed runtime/zero/stage3.py]."""
    return g * largest


def second_copy(psi: int, w: int) -> int:
    """w·Ψ -- the model beside its flat copy inside initialize [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return w * psi


def flat_gradient_copy(flat: int, g: int, n_d: int) -> int:
    """g·F / N -- the partition's gradients, flattened for the step [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return g * flat // n_d


def fp32_gradient_copy(flat: int, n_d: int) -> int:
    """4·F / N -- their fp32 copy, which the optimizer reads [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return 4 * flat // n_d


def group_gradients(group: int, g: int) -> int:
    """g·G -- one sub-group's gradients, flattened for its step [DeepSpeed runtime/zero/stage3.py]."""
    return g * group


def group_fp32_gradients(group: int) -> int:
    """4·G -- their fp32 copy, one sub-group at a time [DeepSpeed runtime/zero/stage3.py]."""
    return 4 * group


def offload_scratch(largest: int, g: int) -> int:
    """g·Λ -- scratch of the largest tensor's size for gradients bound for the host [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return g * largest


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`; 0 for 0."""
    return 1 << (size - 1).bit_length() if size else 0


def swap_buffers(buffer_count: int, buffer_size: int, w: int, ranks: int) -> int:
    """r·β·w·σ -- each rank's page-locked buffers between disk and GPU [DeepSpeed runtime/swap_tensor]."""
    return ranks * buffer_count * w * buffer_size


def pinned_on_node(size: int, ranks: int) -> int:
    """r·2^⌈log2 S⌉ -- page-locked: torch rounds each rank's block up to a power of two [torch
    aten/src/ATen/core/CachingHostAllocator.h].
    """
    return ranks * power_of_two(size)


def pageable_on_node(size: int, ranks: int) -> int:
    """r·S -- ordinary memory, one copy for each rank on the node [DeepSpeed runtime/zero]."""
    return ranks * size


def built_model(psi: int, w: int, ranks: int) -> int:
    """r·w·Ψ -- the model each process builds on the host before initialize [DeepSpeed runtime/engine.py]."""
    return ranks * w * psi
