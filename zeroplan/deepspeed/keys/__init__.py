"""The keys of ds_config.json that DeepSpeed 0.19.8 reads: one table for five uses."""

from __future__ import annotations

from zeroplan.deepspeed.keys import (
    activation_checkpointing,
    aio,
    batch,
    checkpoint,
    data_efficiency,
    data_routing,
    deepcompile,
    expert_parallel,
    monitoring,
    offload,
    optimizer,
    other,
    parallelism,
    precision,
    profiling,
    scheduler,
    zenflow,
    zero,
    zero_stage3,
)
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.sources import DEEPSPEED

_MODULES = (
    batch,
    precision,
    zero,
    zero_stage3,
    offload,
    zenflow,
    aio,
    optimizer,
    scheduler,
    activation_checkpointing,
    monitoring,
    profiling,
    parallelism,
    expert_parallel,
    deepcompile,
    checkpoint,
    data_efficiency,
    data_routing,
    other,
)

STRICT_SECTIONS = frozenset(
    {
        "fp16",
        "bf16",
        "zero_optimization",
        "zero_optimization.offload_param",
        "zero_optimization.offload_optimizer",
        "zero_optimization.zenflow",
        "zero_optimization.leaf_module",
        "tensorboard",
        "wandb",
        "csv_monitor",
        "comet",
        "comms_logger",
        "timers.throughput",
        "tensor_parallel",
        "tensor_parallel.tp",
        "hybrid_engine",
        "compile",
        "weight_quantization",
    }
)
"""Sections where an unknown key stops the run; elsewhere, the top level included, it is silently ignored."""

OPEN_SECTIONS = frozenset(
    {
        "optimizer.params",
        "scheduler.params",
        "tensor_parallel.partition_config",
        "weight_quantization.quantized_initialization",
        "weight_quantization.post_init_quant",
        "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics",
        "datastates_ckpt",
        "autotuning.arg_mappings",
    }
)
"""Sections whose keys this table does not list in full, since another program or the user names them."""

CURRENT = KeyTable(
    DEEPSPEED, (known for module in _MODULES for known in module.KEYS),
    strict=STRICT_SECTIONS, open_sections=OPEN_SECTIONS, removed=REMOVED_KEYS,
)  # fmt: skip
"""The version that everything is compared with; `zeroplan.deepspeed.versions` has the others."""
KEYS = CURRENT.keys
"""Every key by its dotted path, sections included."""
key = CURRENT.key
children = CURRENT.children
