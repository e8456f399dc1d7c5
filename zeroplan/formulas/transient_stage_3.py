"""What is alive for a while at stage 3, as replays of DeepSpeed's order of events count it, in elements."""

from __future__ import annotations

from zeroplan.categories import Category

STAGE_3 = "DeepSpeed runtime/zero/stage3.py"
PARTITIONS = "DeepSpeed runtime/zero/partition_parameters.py"
COORDINATOR = "DeepSpeed runtime/zero/partitioned_param_coordinator.py"
COALESCED = "DeepSpeed runtime/comm/coalesced_collectives.py"
SWAPPER = "DeepSpeed runtime/swap_tensor/optimizer_utils.py"

# fmt: off
# initialize
parameter_partitions = Category("parameter partitions", f"{PARTITIONS}:_partition_param",
    "this rank's piece of every tensor")
converted_weights = Category("converted weights", f"{STAGE_3}:_create_fp32_partitions",
    "a sub-group's weights in the master weights' dtype, of which a clone is kept")
gradient_partitions = Category("gradient partitions", f"{STAGE_3}:_setup_for_real_optimizer",
    "gradient partitions, allocated once and kept")
reduce_bucket = Category("reduce bucket", f"{STAGE_3}:_setup_for_real_optimizer",
    "a buffer of reduce_bucket_size elements for each dtype that gradients travel in",
    note="It is as large for a small model as for a large one: 5e8 elements are 1 GB in 16 bit.")

# parameters that are gathered
gathered_parameters = Category("gathered parameters", f"{COORDINATOR}:fetch_sub_module",
    "parameters gathered for the modules at work and prefetched, with the buffers they arrived in")
partitions_from_host = Category("partitions from host", f"{PARTITIONS}:_allgather_params_coalesced",
    "offloaded partitions, copied to the GPU to be gathered")
secondary_partitions = Category("secondary partitions", f"{PARTITIONS}:_partition_param_sec",
    "a second copy of the parameters, divided among the ranks of a node only, from a tensor's first release in a "
    "step until the step's end (hpZ)")

# gradients, until they are reduced
gradients = Category("gradients", f"{STAGE_3}:__add_grad_to_ipg_bucket",
    "whole gradients, from their birth to their bucket or to their reduction")
copies_in_communication_dtype = Category("copies in communication dtype", f"{STAGE_3}:__avg_scatter_grads",
    "gradients outside the bucket in communication_data_type")
divided_gradients = Category("divided gradients", f"{STAGE_3}:__avg_scatter_grads",
    "gradients divided by gradient_predivide_factor before they are reduced")
interleaved_bucket = Category("interleaved bucket", f"{COALESCED}:reduce_scatter_coalesced",
    "the bucket's partitions laid side by side, rank after rank, for the reduce-scatter")
padding = Category("padding", f"{COALESCED}:reduce_scatter_coalesced",
    "what rounds each tensor of the bucket up to a multiple of the ranks")
averaged_bucket = Category("averaged bucket", f"{STAGE_3}:__avg_scatter_contiguous_grads",
    "the bucket after its all-reduce, copied to be averaged or converted (reduce_scatter off)")
padded_partitions = Category("padded partitions", f"{STAGE_3}:__avg_scatter_contiguous_grads",
    "partitions that reach beyond their tensor's end, copied to be padded")
quantized_gradients = Category("quantized gradients", f"{COALESCED}:all_to_all_quant_reduce",
    "codes of a gradient, 4 bits each, and their scales, as they are sent and as they come in, within the node and "
    "then between nodes (qgZ)")

# this rank's partitions of what was reduced
multiplied_partitions = Category("multiplied partitions", f"{STAGE_3}:__avg_scatter_grads",
    "partitions multiplied by gradient_predivide_factor after that")
converted_partitions = Category("converted partitions", f"{STAGE_3}:__avg_scatter_grads",
    "this rank's reduced partitions in the accumulation dtype")
quantized_partitions = Category("quantized partitions", f"{COALESCED}:all_to_all_quant_reduce",
    "this rank's reduced partitions of a bucket, out of their codes (qgZ)")

# gradients bound for the host or NVMe
partition_from_host = Category("partition from host", f"{STAGE_3}:partition_grads",
    "an offloaded gradient partition, back on the GPU")
partition_for_host = Category("partition for host", f"{STAGE_3}:_offload_grad_partition_at_boundary",
    "a gradient partition in the master weights' dtype, on its way to the host")
gradient_for_the_norm = Category("gradient for the norm", f"{STAGE_3}:_constant_buffered_norm2",
    "a gradient partition in double, whose norm is taken")
norms = Category("norms", f"{STAGE_3}:_constant_buffered_norm2",
    "one norm for each offloaded gradient, until the step has joined them")
gradients_for_swapping = Category("gradients for swapping", f"{SWAPPER}:_swap_out_gradients",
    "gradient partitions bound for NVMe; those that are not written whole stay on the GPU until the optimizer reads "
    "them")

# the optimizer's step
flattened_gradients = Category("flattened gradients", f"{STAGE_3}:_prepare_fp32_grad_for_sub_group",
    "one sub-group's gradient partitions joined for the optimizer")
fp32_gradients = Category("fp32 gradients", f"{STAGE_3}:_prepare_fp32_grad_for_sub_group",
    "one sub-group's joined gradient partitions in the master weights' dtype, which the optimizer reads")
norms_of_groups = Category("norms of groups", f"{STAGE_3}:step",
    "the norm of each sub-group, of all together, and that without the loss scale, until the step returns")
