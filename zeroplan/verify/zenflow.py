"""ZenFlow in a run: cases drawn with it, and a step to look at that is past its warm-up."""

from __future__ import annotations

import random
from typing import Any

from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job

STEPS = 3
"""The third optimizer step equals all later ones."""


def looked_at(job: Job, config: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The config to run, and how many steps: the last neither warms up nor chooses columns, unless every step does.

    Warming up is left out, and columns are chosen in every second update where the config chooses them less often: the
    last but one then has what choosing anew needs. Raises `ContradictionError` for what cannot run here.
    """
    zero = config["zero_optimization"]
    if zero.get("zenflow") is None:
        return config, STEPS
    flow = job.strategy.selective
    if flow is None:
        raise ContradictionError(
            "verify runs zero_optimization.zenflow at stages 1 and 2, with a number for update_interval; "
            "leave zenflow out"
        )
    section, steps = {**zero["zenflow"], "full_warm_up_rounds": 0}, STEPS
    if flow.select_interval and not flow.chooses_in_every_step:
        section["select_interval"] = 2 * flow.update_interval
        steps += 1
    return {**config, "zero_optimization": {**zero, "zenflow": section}}, steps


def draw(r: random.Random, config: dict[str, Any]) -> None:
    """Give a drawn config of stage 1 or 2 a zenflow section, if it offloads and states nothing that stops DeepSpeed."""
    zero = config["zero_optimization"]
    masters = any(f"{name}_master_weights_and_grads" in config.get(name, {}) for name in ("fp16", "bf16"))
    apart = "data_types" in config and zero["stage"] == 1
    whole = not zero.get("reduce_scatter", True)
    if zero["stage"] not in (1, 2) or "offload_optimizer" not in zero or masters or apart or whole:
        return
    interval = r.choice((1, 2, 3))
    zero["zenflow"] = {"update_interval": interval, "topk_ratio": r.choice((0.05, 0.1, 0.4))}
    if r.random() < 0.3:
        zero["zenflow"] |= {"select_strategy": "step", "select_interval": interval}
    if zero.get("overlap_comm") and r.random() < 0.5:
        zero["zenflow"]["offload"] = True
    if "data_types" not in config and r.random() < 0.4:
        zero["zenflow"]["overlap_step"] = True
