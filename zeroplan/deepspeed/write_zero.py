"""The section zero_optimization of a strategy, and aio: DeepSpeed's own names, for the keys that its stage reads."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.leaves import concerns
from zeroplan.deepspeed.defaults import ZERO_FIELDS, strategy_defaults
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.read import OFFLOAD_FIELDS, trainer_fills
from zeroplan.deepspeed.values import AUTO
from zeroplan.deepspeed.zenflow import section as zenflow_section
from zeroplan.specs.job import Job
from zeroplan.specs.model import DEFAULT_LEAVES
from zeroplan.specs.strategy import Offload, Strategy

NVME_PATH = "/local_nvme"
BUFFERS = {"offload_optimizer": 4, "offload_param": 5}
"""DeepSpeed's buffer_count (runtime/zero/offload_config.py)."""


def zero_section(job: Job, *, for_trainer: bool) -> dict[str, Any]:
    """`"auto"` where the Trainer fills in this plan's value."""
    strategy = job.strategy
    fills = trainer_fills(job.model.shape.hidden, strategy.stage) if for_trainer else {}

    def size(key: str, value: int) -> Any:
        return AUTO if fills.get(f"zero_optimization.{key}") == value else value

    zero: dict[str, Any] = {"stage": strategy.stage}
    if strategy.stage == 0:
        return zero
    zero |= {
        "overlap_comm": strategy.overlaps,
        "contiguous_gradients": strategy.contiguous_gradients,
        "reduce_scatter": strategy.scatters,
        "reduce_bucket_size": size("reduce_bucket_size", strategy.reduce_bucket_size),
    }
    if strategy.stage < 3:
        zero["allgather_bucket_size"] = strategy.allgather_bucket_size
    else:
        zero |= {
            "stage3_prefetch_bucket_size": size("stage3_prefetch_bucket_size", strategy.prefetch_bucket_size),
            "stage3_param_persistence_threshold": size(
                "stage3_param_persistence_threshold", strategy.param_persistence_threshold
            ),
            "stage3_max_live_parameters": strategy.max_live_parameters,
            "stage3_max_reuse_distance": strategy.max_reuse_distance,
            "sub_group_size": strategy.sub_group_size,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    zero |= {key: value for key, value in _changed(job).items() if key not in zero}
    for name in BUFFERS:
        if section := getattr(strategy, name):
            zero[name] = _offload(section, name)
    if strategy.selective:
        zero["zenflow"] = zenflow_section(strategy.selective)
    return zero | (_leaves(job) if strategy.stage == 3 else {})


def aio(strategy: Strategy) -> dict[str, Any]:
    """How files are read and written; empty where nothing is."""
    if not any(part and part.device == "nvme" for part in (strategy.offload_optimizer, strategy.offload_param)):
        return {}
    return {
        "block_size": strategy.aio_block_size,
        "queue_depth": strategy.aio_queue_depth,
        "intra_op_parallelism": strategy.aio_intra_op_parallelism,
        "single_submit": strategy.aio_single_submit,
        "overlap_events": strategy.aio_overlap_events,
    }


def _changed(job: Job) -> dict[str, Any]:
    """What is not as DeepSpeed has it, of the keys that the stage reads: zero_hpz_partition_size and the like."""
    strategy, usual = job.strategy, strategy_defaults(job.engine.version)
    return {
        key: getattr(strategy, field) for key, field in ZERO_FIELDS.items()
        if strategy.stage in KEYS[f"zero_optimization.{key}"].stages and getattr(strategy, field) != usual[field]
    }  # fmt: skip


def _leaves(job: Job) -> dict[str, Any]:
    """What stage 3 gathers whole: written where it is not DeepSpeed's default, or where that holds for this model."""
    leaves = job.strategy.leaves
    settings: dict[str, Any] = {}
    if leaves != DEFAULT_LEAVES or (job.model.shape.experts and concerns(job.model.family, leaves)):
        parts = {name: list(getattr(leaves, name)) for name in ("classes", "names", "name_suffixes")}
        classes = parts.pop("classes")
        settings["leaf_module"] = {"classes": classes, **{name: part for name, part in parts.items() if part}}
    if leaves.granularity_threshold:
        settings["stage3_module_granularity_threshold"] = leaves.granularity_threshold
    return settings


def with_defaults(offload: Offload, name: str) -> Offload:
    """With a path and a number of buffers: what is on NVMe has both, whether or not anybody stated them."""
    return offload._replace(
        nvme_path=offload.nvme_path or NVME_PATH, buffer_count=offload.buffer_count or BUFFERS[name]
    )


def _offload(offload: Offload, name: str) -> dict[str, Any]:
    section: dict[str, Any] = {"device": offload.device, "pin_memory": offload.pin_memory}
    if offload.device == "nvme":
        offload = with_defaults(offload, name)
        section |= {"nvme_path": offload.nvme_path, "buffer_count": offload.buffer_count}
        if name == "offload_param":
            section |= {"buffer_size": offload.buffer_size, "max_in_cpu": offload.max_in_cpu}
    usual = Offload._field_defaults
    changed = {field: getattr(offload, field) for field in OFFLOAD_FIELDS if getattr(offload, field) != usual[field]}
    known = {field: value for field, value in changed.items() if f"zero_optimization.{name}.{field}" in KEYS}
    return section | {field: value for field, value in known.items() if field not in section}
