"""What one rank copies in an optimizer step: over PCIe between GPU and host, and between the host and NVMe."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def gradients_for_the_optimizer(moved: int, master: int) -> int:
    """μ·X -- this rank's reduced gradients, once a step, in the master weights' dtype [DeepSpeed
    runtime/zero/stage_1_and_2.py:async_inplace_copy_grad_to_fp32_buffer_from_gpu].

    Stage 3: runtime/zero/stage3.py, _offload_grad_partition_at_boundary.
    """
    return master * moved


def accumulated_to_host(accum: int, own: int, g: int) -> int:
    """α·g·O -- stage 2 adds gradients up on the host: after each micro-step whole tensors go there (this
    rank's pieces of them with 16-bit master weights) [DeepSpeed
    runtime/zero/stage_1_and_2.py:async_accumulate_grad_in_cpu_via_gpu].
    """
    return accum * g * own


def accumulated_from_host(accum: int, own: int, g: int) -> int:
    """(α - 1)·g·O -- and come back in each micro-step but the first, because the GPU adds [DeepSpeed
    runtime/zero/stage_1_and_2.py:async_accumulate_grad_in_cpu_via_gpu].
    """
    return (accum - 1) * g * own


def checkpoints(accum: int, size: int, tp: int) -> int:
    """α·⌈S/τ⌉ -- inputs of checkpointed layers, in each micro-step to the host in forward and back in backward; whole
    ones (τ = 1) but for the last, and the last two on the way back [DeepSpeed
    runtime/activation_checkpointing/offload_activations.py].

    With partition_activations all of them, each tensor-parallel rank its part: checkpointing.py.
    """
    return accum * ceil_div(size, tp)


def partitions_to_host(accum: int, moved: int, g: int) -> int:
    """α·g·X -- stage 3 keeps gradient partitions on the host: each micro-step's go there [DeepSpeed
    runtime/zero/stage3.py:partition_grads].
    """
    return accum * g * moved


def partitions_from_host(accum: int, moved: int, g: int) -> int:
    """α·g·X -- and come back, to be added to, normed and converted [DeepSpeed runtime/zero/stage3.py:partition_grads].

    The paper counts no such copy: with α = 1 it is as much as the first one.
    """
    return accum * g * moved


def updated_parameters(moved: int, w: int) -> int:
    """w·X -- updated parameters, from where the optimizer runs to where they are kept [DeepSpeed
    runtime/zero/stage_1_and_2.py:step].

    Stage 3: runtime/zero/stage3.py, _reassign_or_swap_out_partitioned_parameters.
    """
    return w * moved


def secondary_partitions(moved: int, w: int) -> int:
    """w·X -- the second copy of offloaded parameters (hpZ), made on the GPU and kept on the host until the step's end
    [DeepSpeed runtime/zero/partition_parameters.py:_partition_param_sec].
    """
    return w * moved


def fetched_partitions(accum: int, moved: int, w: int) -> int:
    """α·w·X -- offloaded partitions, copied to the GPU each time they are gathered [DeepSpeed
    runtime/zero/partition_parameters.py:_all_gather_dtype].
    """
    return accum * w * moved


def fetched_to_quantize(accum: int, moved: int, w: int) -> int:
    """α·w·X -- of tensors that are gathered alone with 8-bit codes, which come as fp16 [DeepSpeed
    runtime/zero/partition_parameters.py:quantize].
    """
    return accum * w * moved


def persistent_partitions(moved: int, w: int) -> int:
    """w·X -- offloaded partitions of the persistent parameters, after the step [DeepSpeed
    runtime/zero/parameter_offload.py:get_persistent].
    """
    return w * moved


def muon_updates(moved: int, w: int) -> int:
    """w·X -- this rank's gradients of Muon's matrices, and back from them its updates [DeepSpeed
    runtime/zero/stage3.py:_apply_muon_updates_cpu_offload].
    """
    return w * moved


def muon_momentum(moved: int, w: int) -> int:
    """w·X -- their momentum, likewise both ways [DeepSpeed
    runtime/zero/stage3.py:_apply_muon_updates_cpu_offload].
    """
    return w * moved


def norms(tensors: int, w: int) -> int:
    """w·t -- the gradients' norm, a number for each sub-group [DeepSpeed
    runtime/zero/stage3.py:complete_grad_norm_calculation_for_cpu_offload].
    """
    return w * tensors


def zero_norms(tensors: int, w: int) -> int:
    """w·t -- a zero, made on the host, for each group of which this rank has nothing but padding [DeepSpeed
    runtime/zero/stage_1_and_2.py:get_grad_norm_direct].
    """
    return w * tensors


def overflow_flag(tensors: int, w: int) -> int:
    """w·t -- fp16's overflow flag, which the ranks then agree on [DeepSpeed runtime/zero/stage3.py:has_overflow]."""
    return w * tensors


def unscaling(tensors: int, w: int) -> int:
    """w·t -- under fp16 autocast the inverse of the loss scale and the overflow flag, for each update on the host
    [torch torch/amp/grad_scaler.py:_unscale_grads_].
    """
    return w * tensors


def unscaled(tensors: int, w: int) -> int:
    """w·t -- and the flag back, which moves the loss scale [torch torch/amp/grad_scaler.py:update]."""
    return w * tensors


def files_read(size: int) -> int:
    """S -- swap files read, whole and aligned [DeepSpeed runtime/swap_tensor]."""
    return size


def files_written(size: int) -> int:
    """S -- swap files written, whole and aligned [DeepSpeed runtime/swap_tensor]."""
    return size
