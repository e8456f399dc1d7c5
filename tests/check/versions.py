"""Configs with one key, of which every released DeepSpeed was asked (tests/references/make_key_history.py)."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS

VALUES: list[Any] = [
    None, True, False, 0, 1, 2, 3, -1, 4, 2.0, 2.5, 1e18, 1e19, 0.5, "x", "1", "2.0", " 2 ", "+5", "1_000", "5.", "1e3",
    "0.5", "true", "Yes", "auto", "cpu", "none", "nvme", "", [], ["z1"], ["a"], [1], {}, {"a": 1}, "symmetric", "torch",
    "step", "fp16", "bfloat16", "Warn",
]  # fmt: skip
UNKNOWN = "surely_unknown"


def paths() -> list[str]:
    """Every key, under each of its names, those that were removed, and one that nobody knows in each section."""
    spelled = [f"{known.section}.{alias}".strip(".") for known in KEYS.values() for alias in known.aliases]
    sections = {known.section for known in KEYS.values()} | {path for path in REMOVED_KEYS if "." not in path}
    old = ["aio.thread_count", "seq_parallel_comm_data_type", "bfloat16.enabled"]
    unknown = [f"{section}.{UNKNOWN}".strip(".") for section in sorted(sections)]
    switches = [f"{path}.enabled" for path in REMOVED_KEYS if "." not in path]
    return list(dict.fromkeys([*KEYS, *spelled, *REMOVED_KEYS, *switches, *old, *unknown]))


def pairs(count: int) -> list[dict[str, Any]]:
    """Configs of two keys or three, drawn: values that a key takes, or any."""
    configs = []
    for seed in range(count):
        r, config = random.Random(seed), {"train_batch_size": 8}
        if r.random() < 0.6:
            config["zero_optimization"] = {"stage": r.choice([1, 2, 3])}
        for path in r.sample(paths(), r.choice([2, 2, 3])):
            known = KEYS.get(path)
            usual = [*known.choices, known.default, True, 1] if known is not None else [True, {"enabled": True}]
            put(config, path, deepcopy(r.choice(usual if r.random() < 0.6 else VALUES)))
        configs.append(config)
    return configs


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """A value at a path, as far as sections are some."""
    section: Any = config
    *outer, name = path.split(".")
    for part in outer:
        section = section.setdefault(part, {}) if isinstance(section, dict) else None
    if isinstance(section, dict):
        section[name] = value


def one_key(path: str, value: Any) -> dict[str, Any]:
    """A config of one key beside what the reader wants in any case."""
    config: dict[str, Any] = {"train_batch_size": 8}
    if path.startswith(("optimizer.", "scheduler.")):
        config[path.partition(".")[0]] = {"type": "AdamW" if path[0] == "o" else "WarmupLR"}
    if path == "zero_optimization.compute_grad_norm":
        config["zero_optimization"] = {"stage": 2}
    put(config, path, value)
    return config
