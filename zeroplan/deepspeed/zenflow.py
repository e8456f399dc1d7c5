"""zero_optimization.zenflow as DeepSpeed 0.19.8 resolves it, and written again (runtime/zenflow/engine.py)."""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.facts import Facts
from zeroplan.specs.strategy import ZenFlow

SECTION = "zero_optimization.zenflow"


def switched_on(facts: Facts) -> bool:
    """Whether ZenFlow is on: when the section is there."""
    return facts.stated(SECTION) is not None


def is_counted(facts: Facts) -> bool:
    """Stages 1 and 2, with a stated interval, under Adam: Muon's updates beside chosen columns move other amounts.

    With update_interval "auto" the gradients decide when the host updates, and DeepSpeed divides the loss by an
    accumulation of 0: it is nan from the first update on (runtime/engine.py:backward). Stage 3 cannot be measured
    without a GPU: it asks for "cuda" by name (runtime/zenflow/engine_stage3.py).
    """
    return facts.stage in (1, 2) and has_interval(facts) and facts.optimizer != "muon"


def has_interval(facts: Facts) -> bool:
    return isinstance(facts(f"{SECTION}.update_interval"), int)


def zenflow(facts: Facts) -> dict[str, ZenFlow]:
    """The field of `Strategy`. Epochs, which "auto" means too, are longer than any step."""
    if not switched_on(facts) or not is_counted(facts):
        return {}
    by_step = facts(f"{SECTION}.select_strategy") == "step"
    settings = ZenFlow(
        update_interval=facts(f"{SECTION}.update_interval"),
        topk_ratio=facts(f"{SECTION}.topk_ratio"),
        select_interval=facts(f"{SECTION}.select_interval") if by_step else 0,
        offload=facts(f"{SECTION}.offload"),
        overlap_step=facts(f"{SECTION}.overlap_step"),
    )
    return {"zenflow": settings}


def accumulates_apart(facts: Facts) -> bool:
    """Gradients are added up in another dtype than the model's."""
    accumulates = facts.stated_dtype("data_types.grad_accum_dtype")
    return None not in (accumulates, facts.dtype) and accumulates != facts.dtype


def notes(facts: Facts) -> list[str]:
    """What a run with it does to the model, whatever its size."""
    if not switched_on(facts) or facts.stage not in (1, 2):
        return []
    lines = [
        "zenflow: DeepSpeed 0.19.8 exchanges rows and columns of every matrix in initialize, so pretrained weights "
        "are lost (runtime/zero/stage_1_and_2.py:_update_model_bit16_weights)"
    ]
    if accumulates_apart(facts):
        lines.append(
            "zenflow: with a data_types.grad_accum_dtype that is not the model's the host's gradients are zeros "
            "(runtime/zero/stage_1_and_2.py:_build_compact_grad_partition_buffer), leave it out"
        )
    return lines


def section(stated: ZenFlow) -> dict[str, Any]:
    """The section that reads as these settings."""
    chosen = {"select_strategy": "step", "select_interval": stated.select_interval} if stated.select_interval else {}
    return {
        "topk_ratio": stated.topk_ratio,
        "update_interval": stated.update_interval,
        **chosen,
        "offload": stated.offload,
        "overlap_step": stated.overlap_step,
    }
