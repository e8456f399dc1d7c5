"""ZenFlow: what the columns that are updated at once hold, and for a while need, on the GPU."""

from __future__ import annotations


def moments(chosen: int, w: int) -> int:
    """2·w·χ -- both moments of the chosen columns, in the training precision [DeepSpeed
    ops/adam/zenflow_torch_adam.py:_step_without_offload].
    """
    return 2 * w * chosen


def columns(indices: int) -> int:
    """4·ι -- which columns are chosen, as int32; of a tensor that is cut over ranks each piece's once more [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:update_selected_channels].
    """
    return 4 * indices


def moments_on_host(moved: int, w: int) -> int:
    """2·w·X -- both moments of the chosen columns, once for every update of them [DeepSpeed
    ops/adam/zenflow_torch_adam.py:copy_mv_from_cpu, copy_mv_to_cpu].
    """
    return 2 * w * moved


def chosen_weights_moved(moved: int, w: int) -> int:
    """w·X -- the chosen columns' weights, set aside on the host before the update there [DeepSpeed
    ops/adam/zenflow_torch_adam.py:temp_copy_param].
    """
    return w * moved


def master_from_gpu(moved: int, master: int) -> int:
    """μ·X -- this rank's weights, which the host takes over before columns are chosen anew [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:sync_fp32_param_from_gpu].
    """
    return master * moved


def transposed_matrices(alive: int, w: int) -> int:
    """w·Y -- matrices copied with rows and columns exchanged: one group's for its flat copy, a gradient on its way to
    the bucket [DeepSpeed runtime/zenflow/zenflow_utils.py:_flatten_dense_tensors].
    """
    return w * alive


def chosen_gradients(alive: int, w: int) -> int:
    """w·Y -- gradients of the chosen columns, all ranks', until their update [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:_process_selected_fp32_groups_grad].
    """
    return w * alive


def gradient_buffer(alive: int, w: int) -> int:
    """w·Y -- the buffer in which ranks send each other the chosen columns' gradients of one bucket [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:_process_selected_fp32_groups_grad].
    """
    return w * alive


def chosen_weights(alive: int, w: int) -> int:
    """w·Y -- the chosen columns' weights, copied for their update or set aside before the host's [DeepSpeed
    ops/adam/zenflow_torch_adam.py:temp_copy_param, group_step].
    """
    return w * alive


def chosen_moments(alive: int, w: int) -> int:
    """w·Y -- moments of the chosen columns: fetched from the host, or just made [DeepSpeed
    ops/adam/zenflow_torch_adam.py:group_step].
    """
    return w * alive


def columns_sums(alive: int, w: int) -> int:
    """w·Y -- magnitudes of one gradient and their sums by column, to choose by [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:update_selected_channels].
    """
    return w * alive


def chosen_columns(alive: int, w: int) -> int:
    """w·Y -- which columns are chosen, as they are found, sent, sorted [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:update_selected_channels].
    """
    return w * alive
