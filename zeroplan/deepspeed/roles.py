"""What each key of a ds_config.json is to a plan: counted, named beside the numbers, or known to change none of them.

One table for all commands. A key of `zeroplan.deepspeed.keys` that stands in none of its parts fails
tests/deepspeed/test_roles.py, and a key of a file that DeepSpeed 0.19.8 does not know is named as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zeroplan.deepspeed import uncounted, unplanned, zenflow
from zeroplan.deepspeed.keys import OPEN_SECTIONS, key
from zeroplan.deepspeed.names import COMMENTS

COUNTED, NAMED, NOTHING = "counted", "named", "nothing"
ZERO = "zero_optimization"


class Role(NamedTuple):
    """What a key is to a plan."""

    kind: str
    reason: str = ""
    """Why it changes nothing."""


def _inside(section: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names)


COUNTED_KEYS = frozenset(
    {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping",
        "prescale_gradients", "gradient_predivide_factor", "communication_data_type",
        "seq_parallel_communication_data_type", "allgather_size",
        *_inside("fp16", "enabled", "fp16_master_weights_and_grads"),
        *_inside("bf16", "enabled", "immediate_grad_update", "check_grad_overflow", "bf16_master_weights_and_grads",
                 "bf16_optimizer_states"),
        *_inside("data_types", "grad_accum_dtype", "buffer_dtype"),
        *_inside("torch_autocast", "enabled", "dtype"),
        *_inside(
            ZERO, "stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size",
            "use_multi_rank_bucket_allreduce", "allgather_bucket_size", "overlap_comm", "compute_grad_norm",
            "cpu_offload", "cpu_offload_param", "round_robin_gradients", "parameter_alignment", "sub_group_size",
            "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "stage3_model_persistence_threshold",
            "stage3_max_live_parameters", "stage3_max_reuse_distance", "stage3_module_granularity_threshold",
            "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential", "zero_hpz_partition_size",
            "zero_quantized_weights", "zero_quantized_gradients", "memory_efficient_linear",
        ),
        *_inside(f"{ZERO}.leaf_module", "classes", "names", "name_suffixes"),
        *_inside(f"{ZERO}.offload_param", "device", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory"),
        *_inside(f"{ZERO}.offload_optimizer", "device", "buffer_count", "pin_memory", "pipeline_read",
                 "pipeline_write", "ratio"),
        *_inside(zenflow.SECTION, "topk_ratio", "update_interval", "select_strategy", "select_interval", "offload",
                 "overlap_step"),
        *_inside("aio", "block_size", "queue_depth", "intra_op_parallelism", "overlap_events"),
        *_inside("optimizer", "type"),
        *_inside("optimizer.params", "weight_decay", "amsgrad", "adam_w_mode", "torch_adam", "foreach",
                 "fp32_optimizer_states", "momentum", "ns_method"),
        *_inside("activation_checkpointing", "partition_activations", "cpu_checkpointing",
                 "contiguous_memory_optimization", "number_checkpoints"),
    }
)  # fmt: skip
"""They change what is held, moved or timed."""

NAMED_KEYS = frozenset(
    {
        *(row.key for row in (*unplanned.REFUSED, *unplanned.NAMED)),
        uncounted.SANITY_CHECKS, uncounted.FROZEN_CODES, uncounted.FP32_BUFFERS, uncounted.GPU_DIRECT,
        *uncounted.SYNCHRONIZING, "aio.single_submit",
    }
) - COUNTED_KEYS  # fmt: skip
"""They change something that no number has in it: an entry of `Stated.unplanned`, a refusal, or said beside them."""

VALUES = "it changes the values of numbers, not how many there are"
SCHEDULE = "it changes the learning rate, a number"
SAVING = "it acts while a checkpoint is saved or loaded, which no number here covers"
LOGGING = "it writes logs"
OFF = "it is read where {} is on, which is {} by itself"

NOTHING_KEYS: dict[str, str] = {
    "gradient_allreduce_op": VALUES,
    "data_parallel_size": "without sequence_parallel_size it is passed over, with it that key is looked at",
    "dataloader_drop_last": "it drops the last batch of an epoch",
    "vocabulary_size": "DeepSpeed warns if it is no multiple of 8, and does nothing else with it",
    "zero_allow_untested_optimizer": "it lets an optimizer pass, and changes none",
    "zero_force_ds_cpu_optimizer": "it stops a run whose optimizer is another, and changes none",
    "steps_per_print": LOGGING,
    "dump_state": LOGGING,
    "log_level": LOGGING,
    "tensorboard": LOGGING,
    "wandb": LOGGING,
    "csv_monitor": LOGGING,
    "comet": LOGGING,
    "comms_logger": LOGGING,
    "flops_profiler": "it decides what the profile of one step looks like",
    "timers": "throughput is timed at the end of a step, where the loss is waited for anyway",
    "disable_allgather": "DeepSpeed 0.19.8 reads it and does nothing with it",
    "disable_python_gc": "it changes when Python frees objects in cycles, of which the counted tensors are none",
    "use_data_before_expert_parallelism": "it orders groups of experts, which are refused",
    "checkpoint": SAVING,
    "scheduler": SCHEDULE,
    "fp16.auto_cast": "inputs that are cast are token ids, which stay as they are",
    "fp16.loss_scale": VALUES,
    "fp16.initial_scale_power": VALUES,
    "fp16.loss_scale_window": VALUES,
    "fp16.hysteresis": VALUES,
    "fp16.consecutive_hysteresis": VALUES,
    "fp16.min_loss_scale": VALUES,
    "data_types.param_dtype": "DeepSpeed refuses another dtype than that which fp16 and bf16 enable",
    f"{ZERO}.allgather_partitions": "DeepSpeed 0.19.8 reads it and does nothing with it",
    f"{ZERO}.load_from_fp32_weights": SAVING,
    f"{ZERO}.elastic_checkpoint": SAVING,
    f"{ZERO}.pipeline_loading_checkpoint": SAVING,
    f"{ZERO}.stage3_gather_16bit_weights_on_model_save": SAVING,
    f"{ZERO}.stage3_gather_fp16_weights_on_model_save": SAVING,
    f"{ZERO}.cpu_offload_use_pin_memory": "DeepSpeed 0.19.8 does nothing with it",
    f"{ZERO}.ignore_unused_parameters": "it lets parameters pass that get no gradient, which are none of those counted",
    f"{ZERO}.legacy_stage1": "DeepSpeed refuses it if it is true",
    f"{ZERO}.override_module_apply": "it concerns how a model is built under zero.Init, not what is held then",
    f"{ZERO}.log_trace_cache_warnings": LOGGING,
    f"{ZERO}.offload_param.nvme_path": "it says where files are, not how many bytes they have",
    f"{ZERO}.offload_optimizer.nvme_path": "it says where files are, not how many bytes they have",
    f"{ZERO}.offload_optimizer.fast_init": "it changes how long initialize takes",
    f"{ZERO}.offload_optimizer.cpuadam_cores_perc": OFF.format("super_offload", "named"),
    f"{zenflow.SECTION}.auto_ratio": "it is read with an update_interval that is auto, which is refused",
    f"{zenflow.SECTION}.full_warm_up_rounds": "it concerns the first steps; numbers are those of later ones",
    f"{zenflow.SECTION}.pt_reserved_cores_perc": "it divides the host's cores, of which numbers take no count",
    f"{zenflow.SECTION}.steps_per_epoch": "it is read with an interval of epochs, longer than any step",
    "optimizer.legacy_fusion": "at stage 0 it chooses the order of the same operations",
    "optimizer.params.lr": VALUES,
    "optimizer.params.betas": VALUES,
    "optimizer.params.eps": VALUES,
    "optimizer.params.bias_correction": VALUES,
    "optimizer.params.set_grad_none": "gradients are freed by ZeRO, whatever it says",
    "optimizer.params.max_coeff": VALUES,
    "optimizer.params.min_coeff": VALUES,
    "optimizer.params.eps_inside_sqrt": VALUES,
    "optimizer.params.muon_lr": VALUES,
    "optimizer.params.adam_lr": VALUES,
    "activation_checkpointing.synchronize_checkpoint_boundary": "it waits at boundaries that are waited at in a step",
    "activation_checkpointing.profile": LOGGING,
    "tensor_parallel": OFF.format("tensor_parallel.autotp_size", "refused"),
    "pipeline": "a PipelineModule reads it, which is not planned; a note says so",
    "hybrid_engine": OFF.format("hybrid_engine.enabled", "refused"),
    "expert_parallel": OFF.format("expert_parallel.enabled", "refused"),
    "compile": OFF.format("compile.deepcompile", "refused"),
    "data_efficiency": OFF.format("a part of it", "named"),
    "weight_quantization": "training reads quantized_initialization of it, which is refused",
    "autotuning": OFF.format("autotuning.enabled", "named"),
}
"""A key or a section, and why it changes no number."""


def role(path: str) -> Role | None:
    """The role of a key by its dotted path; None for a section whose keys have one each, and for an unknown key."""
    if path in COUNTED_KEYS:
        return Role(COUNTED)
    if path in NAMED_KEYS:
        return Role(NAMED)
    section = path
    while section:
        if section in NOTHING_KEYS:
            return Role(NOTHING, NOTHING_KEYS[section])
        section = section.rpartition(".")[0]
    return None


def passed_over(config: dict[str, Any]) -> list[str]:
    """What is said of the keys that DeepSpeed does not know and of the optimizer's that no number has in it."""
    return [
        f"{path}: handed on to the optimizer, and in no number" if path.startswith("optimizer.params.")
        else f"{path}: DeepSpeed 0.19.8 knows no such key and passes over it"
        for path in _unknown(config, "")
    ]  # fmt: skip


def _unknown(section: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in section.items():
        full = f"{path}.{name}" if path else name
        if name.startswith(COMMENTS):
            continue
        if key(full) is None:
            if path not in OPEN_SECTIONS or path == "optimizer.params":
                yield full
        elif isinstance(value, dict):
            yield from _unknown(value, full)
