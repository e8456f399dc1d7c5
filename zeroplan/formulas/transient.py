"""What is alive for a while at stages 0 to 2, as replays of DeepSpeed's order of events count it, in elements; and
the micro-batch.
"""

from __future__ import annotations

from zeroplan.categories import Category

STAGES_1_2 = "DeepSpeed runtime/zero/stage_1_and_2.py"
ENGINE = "DeepSpeed runtime/engine.py"
FUSED = "DeepSpeed runtime/fp16/fused_optimizer.py"
BF16 = "DeepSpeed runtime/bf16_optimizer.py"


def token_ids(t: int) -> int:
    """8·T -- the micro-batch's token ids, which are its labels too [torch int64]."""
    return 8 * t


# fmt: off
labels = Category("labels", "torch int64, or the values' dtype",
    "the micro-batch's labels, where token ids are not their own")

# initialize
model_as_built = Category("model as built", ENGINE,
    "the model as it came to initialize, what has not been replaced yet")
zeros_to_flatten = Category("zeros to flatten", "DeepSpeed runtime/utils.py:align_dense_tensors",
    "zeros that pad a group, until its flat copy is made")
flat_parameters = Category("flat parameters", f"{STAGES_1_2}:flatten_dense_tensors_aligned",
    "the flat copy of the parameter groups, which replaces the model")
clones = Category("clones", FUSED,
    "a group's tensors, cloned on the way to their flat or fp32 copy")
partition_clone = Category("partition clone", STAGES_1_2,
    "this rank's partition, cloned on the way to its master copy")
master_weights = Category("master weights", "DeepSpeed runtime",
    "the copy of the weights that the optimizer updates")
fp32_gradient_buffer = Category("fp32 gradient buffer", BF16,
    "one fp32 gradient for each parameter, not partitioned")
offload_scratch = Category("offload scratch", STAGES_1_2,
    "scratch of the largest tensor's size for gradients bound for the host")
first_states = Category("first states", f"{FUSED}:initialize_optimizer_states",
    "optimizer states, made in initialize by a step on zeros")

# gradients, until they are reduced
gradients = Category("gradients", f"{STAGES_1_2}:reduce_independent_p_g_buckets_and_remove_grads",
    "gradients in storage of their own, from their birth to their bucket or to the step")
joined_gradients = Category("joined gradients", f"{ENGINE}:allreduce_bucket",
    "gradients copied into one tensor for the engine's all-reduce, up to 5e8 elements and the tensor that exceeds "
    "them")
reduce_bucket = Category("reduce bucket", f"{STAGES_1_2}:setup_buckets",
    "the buffer of reduce_bucket_size elements, two with overlap_comm, made when the first gradient is ready",
    note="It is as large for a small model as for a large one: 5e8 elements are 1 GB in 16 bit.")
clone_of_a_large_gradient = Category("clone of a large gradient",
    f"{STAGES_1_2}:reduce_independent_p_g_buckets_and_remove_grads",
    "a gradient larger than its bucket is cloned when the optimizer is offloaded")
joined_slices = Category("joined slices", f"{STAGES_1_2}:allreduce_bucket",
    "slices of the bucket copied into one tensor for their all-reduce")
copy_in_communication_dtype = Category("copy in communication dtype", f"{STAGES_1_2}:allreduce_bucket",
    "a copy of what is reduced, in communication_data_type where that differs")

# this rank's part of what was reduced
own_gradients = Category("own gradients", f"{STAGES_1_2}:copy_grads_in_partition",
    "reduced gradients of all whole tensors that touch this rank's partition, kept for the step")
gradient_partition = Category("gradient partition", f"{STAGES_1_2}:_build_compact_grad_partition_buffer",
    "this rank's partition of the gradients in the accumulation dtype")
gradient_for_the_partition = Category("gradient for the partition", f"{STAGES_1_2}:_add_to_grad_partition_buffer",
    "a copy of one reduced slice in the accumulation dtype, on its way to this rank's partition")
gradient_in_fp32 = Category("gradient in fp32", f"{BF16}:_update_hp_grad",
    "one gradient in fp32 on its way into the fp32 gradients")
gradient_for_the_host = Category("gradient for the host",
    f"{STAGES_1_2}:async_inplace_copy_grad_to_fp32_buffer_from_gpu",
    "a copy of one gradient in the master weights' dtype, on its way to the host")
gradient_for_the_norm = Category("gradient for the norm", f"{STAGES_1_2}:get_grad_norm_direct",
    "a copy of one gradient in double, whose norm is taken")

# the optimizer's step
padding = Category("padding", f"{STAGES_1_2}:_get_flat_partition_unpadded",
    "zeros that fill this rank's partition where no gradient reaches")
flattened_gradients = Category("flattened gradients", f"{STAGES_1_2}:step",
    "this rank's gradients of one group copied into one tensor for the optimizer")
converted_gradients = Category("converted gradients", f"{FUSED}:step",
    "one group's gradients, each converted to fp32 before they are joined")
fp32_gradients = Category("fp32 gradients", f"{STAGES_1_2}:step",
    "the gradients that the optimizer reads, in the master weights' dtype, one group at a time")
optimizer_temporaries = Category("optimizer temporaries", "torch torch/optim",
    "copies that torch's optimizer makes of a partition, foreach or tensor by tensor, or transformers' Adafactor")
