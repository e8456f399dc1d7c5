"""What one rank copies in an optimizer step: over PCIe between GPU and host, and between the host and NVMe."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div
from zeroplan.categories import Category

STAGES_1_2 = "DeepSpeed runtime/zero/stage_1_and_2.py"
PARTITIONS = "DeepSpeed runtime/zero/partition_parameters.py"
STAGE_3 = "DeepSpeed runtime/zero/stage3.py"


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


# fmt: off
# parameters
updated_parameters = Category("updated parameters", f"{STAGES_1_2}:step",
    "updated parameters, from where the optimizer runs to where they are kept",
    note="Stage 3: runtime/zero/stage3.py, _reassign_or_swap_out_partitioned_parameters.")
persistent_partitions = Category("persistent partitions", f"{STAGE_3}:_post_step",
    "offloaded partitions of the persistent parameters, after the step")
secondary_partitions = Category("secondary partitions", f"{PARTITIONS}:_partition_param_sec",
    "the second copy of offloaded parameters (hpZ), made on the GPU and kept on the host until the step's end")

# Muon
muon_updates = Category("muon updates", f"{STAGE_3}:_apply_muon_updates_cpu_offload",
    "this rank's gradients of Muon's matrices, and back from them its updates")
muon_momentum = Category("muon momentum", f"{STAGE_3}:_apply_muon_updates_cpu_offload",
    "this rank's momentum of Muon's matrices, to where it is updated and back")

# single numbers
norms = Category("norms", f"{STAGE_3}:complete_grad_norm_calculation_for_cpu_offload",
    "the gradients' norm, a number for each sub-group")
zero_norms = Category("zero norms", f"{STAGES_1_2}:get_grad_norm_direct",
    "a zero, made on the host, for each group of which this rank has nothing but padding")
overflow_flag = Category("overflow flag", f"{STAGE_3}:has_overflow",
    "fp16's overflow flag, which the ranks then agree on")
unscaling = Category("unscaling", "torch torch/amp/grad_scaler.py:_unscale_grads_",
    "under fp16 autocast the inverse of the loss scale and the overflow flag, for each update on the host")
unscaled = Category("unscaled", "torch torch/amp/grad_scaler.py:update",
    "the overflow flag, back on the GPU, which moves the loss scale")

# NVMe
files_read = Category("files read", "DeepSpeed runtime/swap_tensor",
    "swap files read, whole and aligned")
files_written = Category("files written", "DeepSpeed runtime/swap_tensor",
    "swap files written, whole and aligned")
