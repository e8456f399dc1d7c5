"""ZenFlow: what the columns that are updated at once hold, and for a while need, on the GPU."""

from __future__ import annotations

from zeroplan.categories import Category

ZENFLOW_ADAM = "DeepSpeed ops/adam/zenflow_torch_adam.py"
ZENFLOW = "DeepSpeed runtime/zenflow/zenflow_stage_1_and_2.py"


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


def master_from_gpu(moved: int, master: int) -> int:
    """μ·X -- this rank's weights, which the host takes over before columns are chosen anew [DeepSpeed
    runtime/zenflow/zenflow_stage_1_and_2.py:sync_fp32_param_from_gpu].
    """
    return master * moved


# fmt: off
# copied between GPU and host
chosen_weights_moved = Category("chosen weights moved", f"{ZENFLOW_ADAM}:temp_copy_param",
    "the chosen columns' weights, set aside on the host before the update there")

# for a while, in elements
transposed_matrices = Category("transposed matrices",
    "DeepSpeed runtime/zenflow/zenflow_utils.py:_flatten_dense_tensors",
    "matrices copied with rows and columns exchanged: one group's for its flat copy, a gradient on its way to the "
    "bucket")
columns_sums = Category("columns sums", f"{ZENFLOW}:update_selected_channels",
    "magnitudes of one gradient and their sums by column, to choose by")
chosen_columns = Category("chosen columns", f"{ZENFLOW}:update_selected_channels",
    "which columns are chosen, as they are found, sent, sorted")
gradient_buffer = Category("gradient buffer", f"{ZENFLOW}:_process_selected_fp32_groups_grad",
    "the buffer in which ranks send each other the chosen columns' gradients of one bucket")
chosen_gradients = Category("chosen gradients", f"{ZENFLOW}:_process_selected_fp32_groups_grad",
    "gradients of the chosen columns, all ranks', until their update")
chosen_weights = Category("chosen weights", f"{ZENFLOW_ADAM}:temp_copy_param, group_step",
    "the chosen columns' weights, copied for their update or set aside before the host's")
chosen_moments = Category("chosen moments", f"{ZENFLOW_ADAM}:group_step",
    "moments of the chosen columns: fetched from the host, or just made")
