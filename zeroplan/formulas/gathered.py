"""What is alive for a while at stage 3, as replays of DeepSpeed's order of events count it.

Each takes the elements that the replay found alive and the bytes of one.
"""

from __future__ import annotations


def gathered_parameters(alive: int, w: int) -> int:
    """w·Y -- parameters gathered for the modules at work and prefetched, with the buffers they arrived in [DeepSpeed
    runtime/zero/partitioned_param_coordinator.py:fetch_sub_module].
    """
    return w * alive


def secondary_partitions(alive: int, w: int) -> int:
    """w·Y -- a second copy of the parameters, divided among the ranks of a node only, from a tensor's first release
    in a step until the step's end (hpZ) [DeepSpeed runtime/zero/partition_parameters.py:_partition_param_sec].
    """
    return w * alive


def quantized_gradients(alive: int, w: int) -> int:
    """w·Y -- codes of a gradient, 4 bits each, and their scales, as they are sent and as they come in, within the node
    and then between nodes (qgZ) [DeepSpeed runtime/comm/coalesced_collectives.py:all_to_all_quant_reduce].
    """
    return w * alive


def quantized_partitions(alive: int, w: int) -> int:
    """w·Y -- this rank's reduced partitions of a bucket, out of their codes (qgZ) [DeepSpeed
    runtime/comm/coalesced_collectives.py:all_to_all_quant_reduce].
    """
    return w * alive


def gradients(alive: int, w: int) -> int:
    """w·Y -- whole gradients, from their birth to their bucket or to their reduction [DeepSpeed
    runtime/zero/stage3.py:__add_grad_to_ipg_bucket].
    """
    return w * alive


def averaged_bucket(alive: int, w: int) -> int:
    """w·Y -- the bucket after its all-reduce, copied to be averaged or converted (reduce_scatter off) [DeepSpeed
    runtime/zero/stage3.py:__avg_scatter_contiguous_grads].
    """
    return w * alive


def divided_gradients(alive: int, w: int) -> int:
    """w·Y -- gradients divided by gradient_predivide_factor before they are reduced [DeepSpeed
    runtime/zero/stage3.py:__avg_scatter_grads].
    """
    return w * alive


def multiplied_partitions(alive: int, w: int) -> int:
    """w·Y -- partitions multiplied by gradient_predivide_factor after that [DeepSpeed
    runtime/zero/stage3.py:__avg_scatter_grads].
    """
    return w * alive


def padded_partitions(alive: int, w: int) -> int:
    """w·Y -- partitions that reach beyond their tensor's end, copied to be padded [DeepSpeed
    runtime/zero/stage3.py:__avg_scatter_contiguous_grads].
    """
    return w * alive


def copies_in_communication_dtype(alive: int, w: int) -> int:
    """w·Y -- gradients outside the bucket in communication_data_type [DeepSpeed
    runtime/zero/stage3.py:__avg_scatter_grads].
    """
    return w * alive


def interleaved_bucket(alive: int, w: int) -> int:
    """w·Y -- the bucket's partitions laid side by side, rank after rank, for the reduce-scatter [DeepSpeed
    runtime/comm/coalesced_collectives.py:reduce_scatter_coalesced].
    """
    return w * alive


def padding(alive: int, w: int) -> int:
    """w·Y -- what rounds each tensor of the bucket up to a multiple of the ranks [DeepSpeed
    runtime/comm/coalesced_collectives.py:reduce_scatter_coalesced].
    """
    return w * alive


def converted_partitions(alive: int, w: int) -> int:
    """w·Y -- this rank's reduced partitions in the accumulation dtype [DeepSpeed
    runtime/zero/stage3.py:__avg_scatter_grads].
    """
    return w * alive


def partition_from_host(alive: int, w: int) -> int:
    """w·Y -- an offloaded gradient partition, back on the GPU [DeepSpeed runtime/zero/stage3.py:partition_grads]."""
    return w * alive


def gradient_for_the_norm(alive: int, w: int) -> int:
    """w·Y -- a gradient partition in double, whose norm is taken [DeepSpeed
    runtime/zero/stage3.py:_constant_buffered_norm2].
    """
    return w * alive


def partition_for_host(alive: int, w: int) -> int:
    """w·Y -- a gradient partition in the master weights' dtype, on its way to the host [DeepSpeed
    runtime/zero/stage3.py:_offload_grad_partition_at_boundary].
    """
    return w * alive


def gradients_for_swapping(alive: int, w: int) -> int:
    """w·Y -- gradient partitions bound for NVMe; those that are not written whole stay on the GPU until the optimizer
    reads them [DeepSpeed runtime/swap_tensor/optimizer_utils.py:_swap_out_gradients].
    """
    return w * alive


def flattened_gradients(alive: int, w: int) -> int:
    """w·Y -- one sub-group's gradient partitions joined for the optimizer [DeepSpeed
    runtime/zero/stage3.py:_prepare_fp32_grad_for_sub_group].
    """
    return w * alive


def fp32_gradients(alive: int, w: int) -> int:
    """w·Y -- the same in the master weights' dtype, which the optimizer reads [DeepSpeed
    runtime/zero/stage3.py:_prepare_fp32_grad_for_sub_group].
    """
    return w * alive


def partitions_from_host(alive: int, w: int) -> int:
    """w·Y -- offloaded partitions, copied to the GPU to be gathered [DeepSpeed
    runtime/zero/partition_parameters.py:_allgather_params_coalesced].
    """
    return w * alive


def norms(alive: int, w: int) -> int:
    """w·Y -- one norm for each offloaded gradient, until the step has joined them [DeepSpeed
    runtime/zero/stage3.py:_constant_buffered_norm2].
    """
    return w * alive


def norms_of_groups(alive: int, w: int) -> int:
    """w·Y -- the norm of each sub-group, of all together, and that without the loss scale, until the step returns
    [DeepSpeed runtime/zero/stage3.py:step].
    """
    return w * alive


def parameter_partitions(alive: int, w: int) -> int:
    """w·Y -- this rank's piece of every tensor [DeepSpeed runtime/zero/partition_parameters.py:_partition_param]."""
    return w * alive


def gradient_partitions(alive: int, w: int) -> int:
    """w·Y -- gradient partitions, allocated once and kept [DeepSpeed
    runtime/zero/stage3.py:_setup_for_real_optimizer].
    """
    return w * alive


def converted_weights(alive: int, w: int) -> int:
    """w·Y -- a sub-group's weights in the master weights' dtype, of which a clone is kept [DeepSpeed
    runtime/zero/stage3.py:_create_fp32_partitions].
    """
    return w * alive
