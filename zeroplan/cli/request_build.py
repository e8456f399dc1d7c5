"""How the model is built before DeepSpeed takes it: in which dtype, and on the host or the GPU."""

from __future__ import annotations

from typing import Any

from zeroplan.errors import ContradictionError


def check_build(fixed: dict[str, Any], assumed: list[str]) -> None:
    """Refuse a build that trains in another precision than the stated one; say what is assumed, or does nothing."""
    built, precision = fixed.get("built_in"), fixed.get("precision", "bf16")
    if built in ("fp16", "bf16") and precision == "fp32":
        raise ContradictionError(
            f"--built-in {built} with fp32 training: DeepSpeed casts no model there, so that its weights would stay "
            f"{built}; write --precision {built}, or --built-in fp32"
        )
    stage, zero_init = fixed.get("stage"), fixed.get("zero_init")
    partitioned = zero_init if zero_init is not None else stage == 3
    if partitioned and built not in (None, precision):
        assumed.append(f"--built-in {built} changes nothing under deepspeed.zero.Init, which builds in {precision}")
    if built is None and precision in ("fp16", "bf16") and not partitioned:
        assumed.append(f"model built in {precision} (--built-in)")
