"""Host memory and NVMe files, per node: every rank on it holds its own."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`; 0 for 0."""
    return 1 << (size - 1).bit_length() if size else 0


def rounded_on_node(size: int, rounded: int, ranks: int) -> int:  # noqa: ARG001 (S is what R rounds up)
    """r·R -- page-locked: of S bytes, torch rounds each block up to a power of two [torch
    aten/src/ATen/core/CachingHostAllocator.h].

    DS_PIN_MEMORY_BACKEND=native locks S alone (DeepSpeed utils/pin_memory.py).
    """
    return ranks * rounded


def locked_on_node(size: int, ranks: int) -> int:
    """r·S -- page-locked by DeepSpeed's own allocator, which does not round [DeepSpeed csrc/aio]."""
    return ranks * size


def pageable_on_node(size: int, ranks: int) -> int:
    """r·S -- ordinary memory, one copy for each rank on the node [DeepSpeed runtime/zero]."""
    return ranks * size


def checkpoints_on_node(size: int, tp: int, ranks: int) -> int:
    """r·⌈S/τ⌉ -- inputs of checkpointed layers, from forward until each layer's backward, in ordinary memory
    (partition_activations with cpu_checkpointing) [DeepSpeed
    runtime/activation_checkpointing/checkpointing.py:partition_activations].
    """
    return ranks * ceil_div(size, tp)


def shapes_on_node(layers: int, ranks: int) -> int:
    """24·L·r -- three numbers of 8 bytes for the shape of each input that is partitioned [DeepSpeed
    runtime/activation_checkpointing/checkpointing.py:get_partitioned_activations_for_backward].
    """
    return 24 * layers * ranks


def files_on_node(size: int, ranks: int) -> int:
    """r·S -- swap files, each rank its own [DeepSpeed runtime/swap_tensor]."""
    return ranks * size


def built_model(psi: int, w: int, ranks: int) -> int:
    """r·w·Ψ -- the model each process builds on the host before initialize [DeepSpeed runtime/engine.py]."""
    return ranks * w * psi


def flattened(flat: int, w: int, ranks: int) -> int:
    """2·r·w·F -- a group's tensors with their padding, and their flat copy, where the card has no room for it
    [DeepSpeed runtime/zero/stage_1_and_2.py:__init__].
    """
    return 2 * ranks * w * flat


def defragmented(shards: int, w: int, ranks: int) -> int:
    """r·w·P -- all partitions pass through host memory once, to lie side by side on the GPU [DeepSpeed
    runtime/zero/utils.py:defragment].
    """
    return ranks * w * shards


def processes(size: int, ranks: int) -> int:
    """r·S -- training processes themselves, with PyTorch's and CUDA's libraries, before they train [reports]."""
    return ranks * size


def cloned_by_each(psi: int, w: int, ranks: int) -> int:
    """r·w·Ψ -- weights that each rank clones to the host when the Trainer saves at stages 0 to 2 [DeepSpeed
    checkpoint/utils.py:clone_tensors_for_torch_save].
    """
    return ranks * w * psi


def gathered_by_first(psi: int, w: int) -> int:
    """w·Ψ -- weights that rank 0 gathers on the host when the Trainer saves at stage 3 [DeepSpeed
    runtime/engine.py:_zero3_consolidated_16bit_state_dict].
    """
    return w * psi


def cached_files(psi: int, frozen: int, w: int, k: int, nodes: int) -> int:
    """2·w·(Ψ + Θ) + ⌈K·Ψ/m⌉ -- page cache of weights that a node reads and writes, and of its share of the states in a
    checkpoint: the kernel gives it back, limits of containers count it [zeroplan].
    """
    return 2 * w * (psi + frozen) + ceil_div(k * psi, nodes)
