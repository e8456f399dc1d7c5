"""What is held between steps: parameters, gradients and optimizer states, by the paper's closed forms and as DeepSpeed
holds them; buckets and scratch.
"""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div
from zeroplan.categories import Category


def parameters(psi: int, w: int, n_d: int) -> int:
    """⌈w·Ψ / N⌉ -- the parameters in the training precision, split over the ranks at stage 3 [ZeRO §5.3]."""
    return ceil_div(w * psi, n_d)


def gradients(psi: int, g: int, n_d: int) -> int:
    """⌈g·Ψ / N⌉ -- one gradient per parameter, split over the ranks from stage 2 on [ZeRO §5.2]."""
    return ceil_div(g * psi, n_d)


def optimizer_states(psi: int, k: int, n_d: int) -> int:
    """⌈K·Ψ / N⌉ -- K bytes of optimizer states per parameter, split over the ranks from stage 1 on [ZeRO §5.1].

    With Adam in mixed precision K = 12: the fp32 master copy and two fp32 moments (§3.1).
    """
    return ceil_div(k * psi, n_d)


def flat_parameters(flat: int, w: int) -> int:
    """w·F -- one flat buffer per parameter group, whole on each rank [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return w * flat


def flat_master(flat: int, n_d: int, master: int) -> int:
    """μ·F / N -- the copy of this rank's partition that the optimizer updates [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return master * flat // n_d


def flat_states(flat: int, m: int, n_d: int) -> int:
    """M·F / N -- the optimizer's states of this rank's partition [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return m * flat // n_d


def whole_parameters(psi: int, w: int) -> int:
    """w·Ψ -- the parameters, whole on each rank [DeepSpeed runtime/engine.py]."""
    return w * psi


def frozen_parameters(frozen: int, w: int) -> int:
    """w·Θ -- frozen parameters, whole on each rank and in no flat group [DeepSpeed
    runtime/utils.py:is_optimized_parameter].
    """
    return w * frozen


def block_scales(blocks: int, tensors: int) -> int:
    """4·Bq + 64·t -- an fp32 scale for each block of 64 weights in 4 bit, and each weight's table of 16 values
    [bitsandbytes functional.py:quantize_4bit].
    """
    return 4 * blocks + 64 * tensors


def quantized_scales(blocks: int) -> int:
    """Bq -- scales of blocks of 64 weights, themselves in 8 bit [bitsandbytes functional.py:quantize_4bit]."""
    return blocks


def scales_of_scales(outer: int, tensors: int) -> int:
    """4·Bo + 1092·t -- an fp32 scale for each 256 such scales, and each weight's tables of 16 and 256 values and offset
    [bitsandbytes functional.py:quantize_4bit].
    """
    return 4 * outer + 1092 * tensors


def row_scales(rows: int) -> int:
    """4·Ir -- an fp32 scale for each row of the weights in 8 bit [bitsandbytes nn/modules.py:Int8Params]."""
    return 4 * rows


def kept_codes(codes: int) -> int:
    """Ic -- weights in 8 bit at stage 3, whole on each rank beside their partitions: modules keep what their parameters
    were made of [bitsandbytes nn/modules.py:Linear8bitLt.init_8bit_state].
    """
    return codes


def whole_master(psi: int) -> int:
    """4·Ψ -- the fp32 copy that 16-bit training updates, whole on each rank [DeepSpeed runtime/fp16]."""
    return 4 * psi


def built_states(psi: int, w: int) -> int:
    """w·Ψ -- sums of squares that torch's Adagrad makes as it is built, for parameters that ZeRO replaces later;
    nothing frees them [torch torch/optim/adagrad.py:__init__].
    """
    return w * psi


def whole_states(psi: int, m: int) -> int:
    """M·Ψ -- the optimizer's states, whole on each rank at stage 0 [DeepSpeed runtime/engine.py]."""
    return m * psi


def shard_parameters(shards: int, w: int) -> int:
    """w·P -- this rank's piece of every tensor at stage 3 [DeepSpeed runtime/zero/partition_parameters.py]."""
    return w * shards


def frozen_shards(frozen: int, w: int) -> int:
    """w·Θ -- this rank's piece of every frozen tensor at stage 3, which is gathered as any other [DeepSpeed
    runtime/zero/partition_parameters.py].
    """
    return w * frozen


def kept_secondary_partitions(frozen: int, w: int) -> int:
    """w·Θ -- this rank's piece of the second copy of frozen parameters, divided among the ranks of a node (hpZ): the
    step drops that of what it updates alone [DeepSpeed runtime/zero/stage3.py:invalidate_secondary_tensor].
    """
    return w * frozen


def shard_gradients(shards: int, g: int) -> int:
    """g·P -- gradient partitions, allocated once and kept [DeepSpeed runtime/zero/stage3.py]."""
    return g * shards


def shard_master(shards: int, master: int) -> int:
    """μ·P -- the copy of this rank's pieces that the optimizer updates, also for an fp32 model [DeepSpeed
    runtime/zero/stage3.py].
    """
    return master * shards


def shard_fp32_gradients(shards: int, master: int) -> int:
    """μ·P -- gradients that the optimizer reads, of the sub-groups that partial offload leaves on the GPU [DeepSpeed
    runtime/zero/stage3.py:initialize_optimizer_states].
    """
    return master * shards


def placeholder(w: int) -> int:
    """1·w -- one element that stands in the GPU's optimizer until partial offload gives it a sub-group [DeepSpeed
    runtime/zero/stage3.py].
    """
    return w


def emptied_leaves(tensors: int) -> int:
    """4·t -- one fp32 number for each leaf module that has been released, which its tensors share under
    stage3_module_granularity_threshold [DeepSpeed runtime/zero/partitioned_param_coordinator.py:release_sub_module].
    """
    return 4 * tensors


def shard_states(shards: int, m: int) -> int:
    """M·P -- the optimizer's states of this rank's pieces [DeepSpeed runtime/zero/stage3.py]."""
    return m * shards


def persistent_parameters(persistent: int, w: int) -> int:
    """w·Q -- tensors under the persistence threshold stay whole [DeepSpeed runtime/zero/parameter_offload.py]."""
    return w * persistent


def reduce_bucket(bucket: int, w: int) -> int:
    """w·B -- stage 3's buffer that gradients are copied into, one for each dtype that they travel in [DeepSpeed
    runtime/zero/stage3.py:_setup_for_real_optimizer].

    reduce_bucket_size counts elements: 5e8 of them are 1 GB in 16 bit, whatever the model's size.
    """
    return w * bucket


def whole_gradients(psi: int, g: int) -> int:
    """g·Ψ -- a gradient of each parameter, which BF16_Optimizer keeps [DeepSpeed runtime/bf16_optimizer.py]."""
    return g * psi


def offload_scratch(largest: int, g: int) -> int:
    """g·Λ -- scratch of the largest tensor's size for gradients bound for the host [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return g * largest


# fmt: off
model_buffers = Category("model buffers", "transformers models",
    "buffers that the model registers: rotary frequencies, masks, router biases")
scalars = Category("scalars", "DeepSpeed runtime",
    "single numbers that stay: the last gradient norm, flags")
