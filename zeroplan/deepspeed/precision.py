"""The precision of a config that says nothing of it: fp32 under DeepSpeed alone, the script's under Accelerate.

accelerate 1.15 utils/dataclasses.py:DeepSpeedPlugin.set_mixed_precision, which the Trainer calls too (through
Accelerator, with bf16=True or fp16=True of TrainingArguments): where the section of mixed_precision is missing, it is
added with `"enabled": true`. A section that is there stays as it is, so that `"bf16": {"enabled": false}` is fp32
under Accelerate, and an error of the Trainer with bf16=True ("ds bf16.enabled=False vs hf bf16|bf16_full_eval=True").
"""

from __future__ import annotations

from typing import Any

SECTIONS = {"bf16": "bf16", "fp8": "bf16", "fp16": "fp16"}
"""The section that each value of mixed_precision adds."""
OTHER = {"bf16": "fp16", "fp16": "bf16"}
OLD = "bfloat16"
"""The old name of bf16, which Accelerate does not look at and DeepSpeed does not read beside bf16."""


def is_open(config: dict[str, Any], precision: str | None) -> bool:
    """Whether Accelerate adds the section of this mixed_precision: it is missing, and the other one is not on."""
    section = SECTIONS.get(precision or "")
    if section is None or section in config:
        return False
    other = config.get(OTHER[section])
    return not isinstance(other, dict) or str(other.get("enabled", False)).lower() != "true"


def filled(config: dict[str, Any], precision: str | None) -> dict[str, Any]:
    """The config as Accelerate hands it to DeepSpeed under this mixed_precision."""
    if not is_open(config, precision):
        return config
    off = {"bf16": {"enabled": False}} if OLD in config and "bf16" not in config else {}
    return {**config, **off, SECTIONS[precision or ""]: {"enabled": True}}


def says_nothing(config: dict[str, Any]) -> bool:
    """Whether there is no section of a precision at all."""
    return not any(name in config for name in ("bf16", "fp16", OLD))
