"""What is alive for a while only, as replays of DeepSpeed's order of events count it: gradients, buckets, copies.

Each takes the elements that the replay found alive and the bytes of one.
"""

from __future__ import annotations


def gradients(alive: int, w: int) -> int:
    """w·Y -- gradients in storage of their own, from their birth to their bucket or to the step [DeepSpeed
    runtime/zero/stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads].
    """
    return w * alive


def reduce_bucket(alive: int, w: int) -> int:
    """w·Y -- the buffer of reduce_bucket_size elements, two with overlap_comm, made when the first gradient is ready
    [DeepSpeed runtime/zero/stage_1_and_2.py:setup_buckets].

    It is as large for a small model as for a large one: 5e8 elements are 1 GB in 16 bit.
    """
    return w * alive


def own_gradients(alive: int, w: int) -> int:
    """w·Y -- reduced gradients of all whole tensors that touch this rank's partition, kept for the step [DeepSpeed
    runtime/zero/stage_1_and_2.py:copy_grads_in_partition].
    """
    return w * alive


def gradient_partition(alive: int, w: int) -> int:
    """w·Y -- this rank's partition of the gradients in the accumulation dtype [DeepSpeed
    runtime/zero/stage_1_and_2.py:_build_compact_grad_partition_buffer].
    """
    return w * alive


def joined_slices(alive: int, w: int) -> int:
    """w·Y -- slices of the bucket copied into one tensor for their all-reduce [DeepSpeed
    runtime/zero/stage_1_and_2.py:allreduce_bucket].
    """
    return w * alive


def copy_in_communication_dtype(alive: int, w: int) -> int:
    """w·Y -- a copy of what is reduced, in communication_data_type where that differs [DeepSpeed
    runtime/zero/stage_1_and_2.py:allreduce_bucket].
    """
    return w * alive


def gradient_for_the_partition(alive: int, w: int) -> int:
    """w·Y -- a copy of one reduced slice in the accumulation dtype, on its way to this rank's partition [DeepSpeed
    runtime/zero/stage_1_and_2.py:_add_to_grad_partition_buffer].
    """
    return w * alive


def clone_of_a_large_gradient(alive: int, w: int) -> int:
    """w·Y -- a gradient larger than its bucket is cloned when the optimizer is offloaded [DeepSpeed
    runtime/zero/stage_1_and_2.py:reduce_independent_p_g_buckets_and_remove_grads].
    """
    return w * alive


def gradient_for_the_norm(alive: int, w: int) -> int:
    """w·Y -- a copy of one gradient in double, whose norm is taken [DeepSpeed
    runtime/zero/stage_1_and_2.py:get_grad_norm_direct].
    """
    return w * alive


def gradient_for_the_host(alive: int, w: int) -> int:
    """w·Y -- a copy of one gradient in the master weights' dtype, on its way to the host [DeepSpeed
    runtime/zero/stage_1_and_2.py:async_inplace_copy_grad_to_fp32_buffer_from_gpu].
    """
    return w * alive


def flattened_gradients(alive: int, w: int) -> int:
    """w·Y -- this rank's gradients of one group copied into one tensor for the optimizer [DeepSpeed
    runtime/zero/stage_1_and_2.py:step].
    """
    return w * alive


def fp32_gradients(alive: int, w: int) -> int:
    """w·Y -- the gradients that the optimizer reads, in the master weights' dtype, one group at a time [DeepSpeed
    runtime/zero/stage_1_and_2.py:step].
    """
    return w * alive


def padding(alive: int, w: int) -> int:
    """w·Y -- zeros that fill this rank's partition where no gradient reaches [DeepSpeed
    runtime/zero/stage_1_and_2.py:_get_flat_partition_unpadded].
    """
    return w * alive


def optimizer_temporaries(alive: int, w: int) -> int:
    """w·Y -- copies that torch's optimizer makes of a partition, foreach or tensor by tensor, or Adafactor
    [torch torch/optim, transformers optimization.py].
    """
    return w * alive


def token_ids(t: int) -> int:
    """8·T -- the micro-batch's token ids, which are its labels too [torch int64]."""
    return 8 * t


def model_as_built(alive: int, w: int) -> int:
    """w·Y -- the model as it came to initialize, what has not been replaced yet [DeepSpeed runtime/engine.py]."""
    return w * alive


def zeros_to_flatten(alive: int, w: int) -> int:
    """w·Y -- zeros that pad a group, until its flat copy is made [DeepSpeed runtime/utils.py:align_dense_tensors]."""
    return w * alive


def flat_parameters(alive: int, w: int) -> int:
    """w·Y -- the flat copy of the parameter groups, which replaces the model [DeepSpeed
    runtime/zero/stage_1_and_2.py:flatten_dense_tensors_aligned].
    """
    return w * alive


def clones(alive: int, w: int) -> int:
    """w·Y -- a group's tensors, cloned on the way to their flat or fp32 copy [DeepSpeed
    runtime/fp16/fused_optimizer.py].
    """
    return w * alive


def partition_clone(alive: int, w: int) -> int:
    """w·Y -- this rank's partition, cloned on the way to its master copy [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return w * alive


def master_weights(alive: int, w: int) -> int:
    """w·Y -- the copy of the weights that the optimizer updates [DeepSpeed runtime]."""
    return w * alive


def fp32_gradient_buffer(alive: int, w: int) -> int:
    """w·Y -- one fp32 gradient for each parameter, not partitioned [DeepSpeed runtime/bf16_optimizer.py]."""
    return w * alive


def offload_scratch(alive: int, w: int) -> int:
    """w·Y -- scratch of the largest tensor's size for gradients bound for the host [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return w * alive


def first_states(alive: int, w: int) -> int:
    """w·Y -- optimizer states, made in initialize by a step on zeros [DeepSpeed
    runtime/fp16/fused_optimizer.py:initialize_optimizer_states].
    """
    return w * alive


def converted_gradients(alive: int, w: int) -> int:
    """w·Y -- one group's gradients, each converted to fp32 before they are joined [DeepSpeed
    runtime/fp16/fused_optimizer.py:step].
    """
    return w * alive


def joined_gradients(alive: int, w: int) -> int:
    """w·Y -- gradients copied into one tensor for the engine's all-reduce, up to 5e8 elements and the tensor that
    exceeds them [DeepSpeed runtime/engine.py:allreduce_bucket].
    """
    return w * alive


def gradient_in_fp32(alive: int, w: int) -> int:
    """w·Y -- one gradient in fp32 on its way into the fp32 gradients [DeepSpeed
    runtime/bf16_optimizer.py:_update_hp_grad].
    """
    return w * alive
