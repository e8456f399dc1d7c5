"""The ds_configs of the clones of LLaMA-Factory and axolotl, which training files name wherever they lie themselves."""

from __future__ import annotations

import json
import re
from typing import Any

from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY

AUTO = dict.fromkeys(
    ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"), "auto"
)
BF16 = {"bf16": {"enabled": "auto"}}
CPU = {"device": "cpu", "pin_memory": True}
OFFLOADED = {"offload_optimizer": CPU, "offload_param": CPU}
BY_TRAINER = {
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
}  # fmt: skip


def _fp16(power: int) -> dict[str, Any]:
    return {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": power,
            "hysteresis": 2, "min_loss_scale": 1}  # fmt: skip


def _of_llama_factory(stage: int, **section: Any) -> dict[str, Any]:
    below = {
        "allgather_partitions": True, "allgather_bucket_size": 5e8, "overlap_comm": False, "reduce_scatter": True,
        "reduce_bucket_size": 5e8, "contiguous_gradients": True, "round_robin_gradients": True,
    }  # fmt: skip
    at_3 = {
        "overlap_comm": False, "contiguous_gradients": True, "sub_group_size": 1e9, **BY_TRAINER,
        "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
        "stage3_gather_16bit_weights_on_model_save": True,
    }  # fmt: skip
    zero = {"stage": stage, **section, **(at_3 if stage == 3 else below)}
    return {**AUTO, "zero_allow_untested_optimizer": True, "fp16": _fp16(16), **BF16, "zero_optimization": zero}


def _of_axolotl(section: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {**top, "zero_optimization": section, **AUTO, "wall_clock_breakdown": False}


def _mixed(section: dict[str, Any], **top: Any) -> dict[str, Any]:
    """A config with bf16 and fp16 as the Trainer has them."""
    return _of_axolotl(section, **top, **BF16, fp16={**_fp16(32), "auto_cast": False})


AXOLOTL_1 = {"stage": 1, "overlap_comm": True}
AXOLOTL_2 = {
    "stage": 2, "offload_optimizer": {"device": "cpu"}, "contiguous_gradients": True, "overlap_comm": True,
}  # fmt: skip
AXOLOTL_3 = {
    "stage": 3, "overlap_comm": True, "contiguous_gradients": True, "sub_group_size": 0, **BY_TRAINER,
    "max_live_parameters": 0, "max_reuse_distance": 0, "gather_16bit_weights_on_model_save": True,
}  # fmt: skip
COMPILED = {"compile": {"disable": False, "backend": "inductor"}}
CLIENTS = {"zero_force_ds_cpu_optimizer": False, "zero_allow_untested_optimizer": True}
IN_BF16 = {"bf16": {"enabled": True}}

EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "examples/deepspeed/ds_z0_config.json": (LLAMA_FACTORY, _of_llama_factory(0)),
    "examples/deepspeed/ds_z2_config.json": (LLAMA_FACTORY, _of_llama_factory(2)),
    "examples/deepspeed/ds_z2_offload_config.json": (LLAMA_FACTORY, _of_llama_factory(2, offload_optimizer=CPU)),
    "examples/deepspeed/ds_z3_config.json": (LLAMA_FACTORY, _of_llama_factory(3)),
    "examples/deepspeed/ds_z3_offload_config.json": (LLAMA_FACTORY, _of_llama_factory(3, **OFFLOADED)),
    "deepspeed_configs/zero1.json": (AXOLOTL, _mixed(AXOLOTL_1)),
    "deepspeed_configs/zero1_torch_compile.json": (AXOLOTL, _mixed(AXOLOTL_1, **COMPILED)),
    "deepspeed_configs/zero2.json": (AXOLOTL, _mixed(AXOLOTL_2)),
    "deepspeed_configs/zero2_torch_compile.json": (AXOLOTL, _mixed(AXOLOTL_2, **COMPILED)),
    "deepspeed_configs/zero3.json": (AXOLOTL, _mixed(AXOLOTL_3)),
    "deepspeed_configs/zero3_bf16.json": (AXOLOTL, _of_axolotl(AXOLOTL_3, **IN_BF16)),
    "deepspeed_configs/zero3_bf16_cpuoffload_all.json": (
        AXOLOTL, _of_axolotl({**AXOLOTL_3, **OFFLOADED}, **IN_BF16, **CLIENTS),
    ),
    "deepspeed_configs/zero3_bf16_cpuoffload_params.json": (
        AXOLOTL, _of_axolotl({**AXOLOTL_3, "offload_param": CPU}, **IN_BF16, **CLIENTS),
    ),
}  # fmt: skip
"""Tool and content by the path (LLaMA-Factory of 2026-08, axolotl 0.19)."""
CLONES = {LLAMA_FACTORY: re.compile(r"llama[-_]?factory", re.IGNORECASE), AXOLOTL: re.compile("axolotl")}
"""How the folders of their clones are called, where a path names one."""
CALLED = frozenset(f"{path} of {tool}" for path, (tool, _content) in EXAMPLES.items())


def example_config(named: object, by: str | None) -> tuple[str, str] | None:
    """What findings call such a config, and its text; None for any other name, and where another tool than its own
    reads the file that names it (`by`).
    """
    path = _in_clone(named.removeprefix("./"), by) if isinstance(named, str) else ""
    tool, content = EXAMPLES.get(path, ("", {}))
    if tool != by:
        return None
    return f"{path} of {tool}", json.dumps(content, indent=4) + "\n"


def _in_clone(path: str, by: str | None) -> str:
    """A path as seen from a tool's clone, where it names that: /home/me/LLaMA-Factory/examples/deepspeed/..."""
    parts = path.split("/")
    clone = CLONES.get(by or "")
    at = next((at for at, part in enumerate(parts) if clone is not None and clone.match(part)), -1)
    return "/".join(parts[at + 1 :])


def is_example(name: str) -> bool:
    """Whether findings call such a config so."""
    return name in CALLED
