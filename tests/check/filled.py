"""A config as transformers' Trainer hands it to DeepSpeed (integrations/deepspeed.py): each "auto" that it knows filled."""

from __future__ import annotations

import copy
from typing import Any

HIDDEN = 8
FILLS: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
    "fp16.enabled": False, "bf16.enabled": True, "optimizer.params.lr": 1e-4, "optimizer.params.betas": [0.9, 0.999],
    "optimizer.params.eps": 1e-8, "optimizer.params.weight_decay": 0.0, "scheduler.params.warmup_min_lr": 0,
    "scheduler.params.warmup_max_lr": 1e-4, "scheduler.params.warmup_num_steps": 10,
    "scheduler.params.total_num_steps": 100, "zero_optimization.reduce_bucket_size": HIDDEN * HIDDEN,
    "zero_optimization.stage3_prefetch_bucket_size": int(0.9 * HIDDEN * HIDDEN),
    "zero_optimization.stage3_param_persistence_threshold": 10 * HIDDEN,
}


def filled(config: dict[str, Any], world: int = 1) -> dict[str, Any]:
    config = copy.deepcopy(config)
    fills = dict(FILLS)
    if "bf16" not in config:
        fills["fp16.enabled"] = True
    for path, value in fills.items():
        *inside, name = path.split(".")
        section: Any = config
        for part in inside:
            section = section.get(part) if isinstance(section, dict) else None
        if isinstance(section, dict) and section.get(name) == "auto":
            section[name] = value
    if config.get("train_batch_size") == "auto":
        config["train_batch_size"] = world * (config.get("train_micro_batch_size_per_gpu") or 1) * (
            config.get("gradient_accumulation_steps") or 1)  # fmt: skip
    return config
