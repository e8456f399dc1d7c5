"""Defaults of DeepSpeed's keys, by version: what a config that says nothing means, and what a plan need not write."""

from __future__ import annotations

from functools import cache
from typing import Any

from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.versions import key_table
from zeroplan.sources import DEEPSPEED

ZERO_FIELDS = {
    "reduce_bucket_size": "reduce_bucket_size",
    "allgather_bucket_size": "allgather_bucket_size",
    "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_param_persistence_threshold": "param_persistence_threshold",
    "stage3_model_persistence_threshold": "model_persistence_threshold",
    "stage3_max_live_parameters": "max_live_parameters",
    "stage3_max_reuse_distance": "max_reuse_distance",
    "sub_group_size": "sub_group_size",
    "overlap_comm": "overlap_comm",
    "contiguous_gradients": "contiguous_gradients",
    "reduce_scatter": "reduce_scatter",
    "round_robin_gradients": "round_robin_gradients",
    "zero_hpz_partition_size": "hpz_partition_size",
    "memory_efficient_linear": "memory_efficient_linear",
    "zero_quantized_weights": "quantized_weights",
    "zero_quantized_gradients": "quantized_gradients",
    "parameter_alignment": "parameter_alignment",
    "stage3_allgather_sequential": "allgather_sequential",
    "use_multi_rank_bucket_allreduce": "use_multi_rank_bucket_allreduce",
    "compute_grad_norm": "compute_grad_norm",
    "stage3_use_all_reduce_for_fetch_params": "all_reduce_for_fetch",
}
"""Keys of zero_optimization that are one field of `Strategy` each; the others below likewise."""
TOP_FIELDS = {
    "gradient_clipping": "gradient_clipping", "communication_data_type": "communication_dtype",
    "prescale_gradients": "prescale_gradients", "gradient_predivide_factor": "gradient_predivide_factor",
}  # fmt: skip
AIO_NUMBERS = {
    "block_size": "aio_block_size", "intra_op_parallelism": "aio_intra_op_parallelism",
    "queue_depth": "aio_queue_depth",
}  # fmt: skip
AIO_SWITCHES = {"overlap_events": "aio_overlap_events", "single_submit": "aio_single_submit"}
BF16_FIELDS = ("check_grad_overflow", "immediate_grad_update")
FIELDS: dict[str, str] = {
    **{f"zero_optimization.{key}": field for key, field in ZERO_FIELDS.items()},
    **TOP_FIELDS,
    **{f"aio.{key}": field for key, field in {**AIO_NUMBERS, **AIO_SWITCHES}.items()},
    **{f"bf16.{key}": key for key in BF16_FIELDS},
}
"""The field of `Strategy` that each path sets."""


def default(path: str, version: str = DEEPSPEED) -> Any:
    """What DeepSpeed takes where nobody writes the key. Raises `ContradictionError` for a version that is not known."""
    return key_table(version).keys.get(path, KEYS[path]).default


@cache
def strategy_defaults(version: str = DEEPSPEED) -> dict[str, Any]:
    """Each field of `Strategy` that a key of its own sets, with that key's default. Raises `NotImplementedError` where
    a version has another default of a key that changes bytes and that is none of these: reading would not follow it.
    """
    moving = [known for known in KEYS.values() if known.moves_bytes and known.path not in FIELDS]
    others = sorted(known.path for known in moving if default(known.path, version) != known.default)
    if others:
        raise NotImplementedError(f"DeepSpeed {version}: reading takes no other default of {', '.join(others)}")
    return {field: default(path, version) for path, field in FIELDS.items()}
