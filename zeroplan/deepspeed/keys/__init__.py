"""The keys of ds_config.json that DeepSpeed 0.19.8 reads: one table for four uses."""

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
from zeroplan.deepspeed.keys.key import Key

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

KEYS: dict[str, Key] = {known.path: known for module in _MODULES for known in module.KEYS}
"""Every key by its dotted path, sections included."""

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

_SPELLINGS: dict[tuple[str, str], Key] = {
    (known.section, spelling): known for known in KEYS.values() for spelling in (known.name, *known.aliases)
}

_CHILDREN: dict[str, tuple[Key, ...]] = {}
for _known in KEYS.values():
    _CHILDREN[_known.section] = (*_CHILDREN.get(_known.section, ()), _known)


def key(path: str) -> Key | None:
    """The key at a dotted path, aliases understood (bfloat16.enabled is bf16.enabled); None when unknown."""
    section = ""
    entry: Key | None = None
    for part in path.split("."):
        entry = _SPELLINGS.get((section, part))
        if entry is None:
            return None
        section = entry.path
    return entry


def children(section: str = "") -> tuple[Key, ...]:
    """The keys directly inside a section, in the table's order; without an argument the top level's."""
    return _CHILDREN.get(section, ())
