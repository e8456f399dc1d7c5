"""The ds_configs of ms-swift's own package, which `--deepspeed zero3` names (swift/config of 4.6, as since 3.4;
llm/ds_config of 2.6.1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from zeroplan.releases import number

OWN: dict[str, tuple[int, str]] = {
    "zero0": (0, ""), "zero1": (1, "none"), "zero2": (2, "none"), "zero3": (3, "none"),
    "zero2_offload": (2, "cpu"), "zero3_offload": (3, "cpu"),
}  # fmt: skip
"""ZeRO stage, and where the optimizer and at stage 3 the parameters lie."""
OLDER: dict[str, tuple[int, dict[str, str]]] = {
    "default-zero2": (2, {"offload_optimizer": "none"}),
    "default-zero3": (3, {"offload_optimizer": "none", "offload_param": "none"}),
    "zero2-offload": (2, {"offload_optimizer": "cpu"}),
    "zero3-offload": (3, {"offload_optimizer": "none", "offload_param": "cpu"}),
}
"""Those of releases before 3.0: stage, and where each lies."""
RENAMED = "3.0.0"

PUTS = {
    "zero_hpz_partition_size": "zero_optimization.zero_hpz_partition_size",
    "deepspeed_autotp_size": "tensor_parallel.autotp_size",
}
"""Arguments that it puts into the config (arguments/sft_args.py, _init_deepspeed)."""
SUFFIX = " of ms-swift"


def is_own(name: str) -> bool:
    """Whether findings call such a config so."""
    return name.removesuffix(SUFFIX) in (*OWN, *OLDER) and name.endswith(SUFFIX)


def newer_name(name: object) -> str:
    """What a config of ms-swift 2 is called since 3.0; "" for any other name."""
    return name.removeprefix("default-").replace("-", "_") if isinstance(name, str) and name in OLDER else ""


def of_older(name: object) -> str:
    """That name, to go behind a message."""
    since = newer_name(name)
    return f" (ms-swift 2's name; {since} since 3.0)" if since else ""


def own_config(
    name: object, puts: Mapping[str, Any] | None = None, release: str | None = None
) -> tuple[str, str] | None:  # fmt: skip
    """What findings call such a config, and its text; None for any other name. `puts`: keys that are put into it;
    `release`: the ms-swift that reads it, None for the newest.
    """
    is_older = release is not None and number(release) < number(RENAMED)
    if not isinstance(name, str) or name not in (OLDER if is_older else OWN):
        return None
    if is_older:
        return f"{name}{SUFFIX}", json.dumps(_older(*OLDER[name]), indent=4) + "\n"
    content = with_keys(_content(*OWN[name], plain=name == "zero3"), puts or {})
    return f"{name}{SUFFIX}", json.dumps(content, indent=4) + "\n"


def with_keys(content: dict[str, Any], puts: Mapping[str, Any]) -> dict[str, Any]:
    """A config with keys that a tool puts into it, by their paths."""
    changed = {name: dict(value) if isinstance(value, dict) else value for name, value in content.items()}
    for path, value in puts.items():
        section, _, name = path.rpartition(".")
        changed.setdefault(section, {})[name] = value
    return changed


def _older(stage: int, devices: Mapping[str, str]) -> dict[str, Any]:
    """A config of 2.6.1, which has an optimizer and a schedule."""
    content = _content(stage, "", plain=False)
    offload = {name: {"device": device, "pin_memory": True} for name, device in devices.items()}
    params = dict.fromkeys(("lr", "betas", "eps", "weight_decay"), "auto")
    return content | {
        "optimizer": {"type": "AdamW", "params": params},
        "scheduler": {
            "type": "WarmupCosineLR", "params": dict.fromkeys(("total_num_steps", "warmup_num_steps"), "auto"),
        },
        "zero_optimization": content["zero_optimization"] | offload | {"overlap_comm": True},
    }  # fmt: skip


def _content(stage: int, device: str, *, plain: bool) -> dict[str, Any]:
    return {
        "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
                 "hysteresis": 2, "min_loss_scale": 1},
        "bf16": {"enabled": "auto"},
        "zero_optimization": {
            "stage": stage, **_offload(stage, device), **(_stage_3(plain) if stage == 3 else _below()),
        },
        "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": False,
    }  # fmt: skip


def _offload(stage: int, device: str) -> dict[str, Any]:
    names = [name for name, first in (("offload_optimizer", 1), ("offload_param", 3)) if stage >= first]
    return {name: {"device": device, "pin_memory": True} for name in names}


def _below() -> dict[str, Any]:
    """Keys of the stages below 3."""
    return {
        "allgather_partitions": True, "allgather_bucket_size": 2e8, "overlap_comm": False, "reduce_scatter": True,
        "reduce_bucket_size": 2e8, "contiguous_gradients": True,
    }  # fmt: skip


def _stage_3(plain: bool) -> dict[str, Any]:
    """Keys of stage 3; `plain`: without offload, where ZeRO++ is switched off in words."""
    off = dict.fromkeys(("zero_quantized_weights", "zero_quantized_gradients"), False) if plain else {}
    return {
        "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9, "reduce_bucket_size": "auto", **off,
        "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
        "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True,
    }  # fmt: skip
