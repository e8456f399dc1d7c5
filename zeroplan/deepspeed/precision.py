"""The precision of a config that says nothing of it: fp32 under DeepSpeed alone, the script's under Accelerate.

accelerate 1.15 utils/dataclasses.py:DeepSpeedPlugin.set_mixed_precision, which the Trainer calls too (through
Accelerator, with bf16=True or fp16=True of TrainingArguments): where the section of mixed_precision is missing, it is
added with `"enabled": true`. A section that is there stays as it is, so that `"bf16": {"enabled": false}` is fp32
under Accelerate, and an error of the Trainer with bf16=True ("ds bf16.enabled=False vs hf bf16|bf16_full_eval=True").
"""

from __future__ import annotations

from typing import Any

SECTIONS = {"bf16": "bf16", "fp8": "bf16", "fp16": "fp16"}
"""Of mixed_precision, the section that is added."""
OTHER = {"bf16": "fp16", "fp16": "bf16"}
SPELLINGS = {"bf16": ("bf16", "bfloat16"), "fp16": ("fp16",)}


def is_open(config: dict[str, Any], precision: str | None) -> bool:
    """Whether Accelerate adds the section of this mixed_precision: it is missing, and the other one is not on."""
    section = SECTIONS.get(precision or "")
    if section is None or any(name in config for name in SPELLINGS[section]):
        return False
    other = [config.get(name) for name in SPELLINGS[OTHER[section]]]
    return not any(isinstance(part, dict) and part.get("enabled") not in (None, False, "false") for part in other)


def filled(config: dict[str, Any], precision: str | None) -> dict[str, Any]:
    """The config as Accelerate hands it to DeepSpeed under this mixed_precision."""
    return {**config, SECTIONS[precision or ""]: {"enabled": True}} if is_open(config, precision) else config


def says_nothing(config: dict[str, Any]) -> bool:
    """Whether there is no section of a precision at all."""
    return not any(name in config for names in SPELLINGS.values() for name in names)
