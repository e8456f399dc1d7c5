"""Seconds of steps on an H100 (make_gpu_steps) beside the clock's."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.references.make_gpu_steps import job_of
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.step import step_time

STEPS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "references/gpu/h100_steps.json").read_text()
)["steps"]
LEAST, MOST = 0.55, 1.40
"""Of what was measured. The host is virtual and slow: where it starts kernels more slowly than the card runs them, steps
took up to 1.8 times as long; opt-1.3b's passes are counted too long, by up to a third."""
BUSY = 0.85
"""The share of a step in which kernels run that the card bounds."""


def counted(request: dict[str, Any]) -> float:
    job = job_of(request)
    return step_time(job, ledger(job)).total


@pytest.fixture(scope="module")
def ratios() -> list[float]:
    return [counted(step["request"]) / median(step["seconds"]) for step in STEPS]


def test_none_is_far_off(ratios: list[float]) -> None:
    assert len(ratios) >= 23
    assert [round(ratio, 2) for ratio in ratios if not LEAST <= ratio <= MOST] == []
    assert median(abs(ratio - 1) for ratio in ratios) < 0.25


def test_lora_and_qlora_that_the_card_bounds(ratios: list[float]) -> None:
    """Llama-3.1-8B, rank 16, 4 x 2,048 tokens, checkpointed: 1.117 s in bf16, 1.147 s in nf4."""
    bound = [
        ratio for ratio, step in zip(ratios, STEPS, strict=True)
        if "lora" in step["request"] and step["kernels"][1] > BUSY * median(step["seconds"])
    ]  # fmt: skip
    assert len(bound) == 2
    assert all(0.92 < ratio < 1.10 for ratio in bound)


def test_updates_wait_for_their_start() -> None:
    """Whisper-large-v3's 1,258 tensors: 0.344 s, where the card's own work on 1.54 billion parameters is 0.03 s."""
    whisper = next(step for step in STEPS if step["request"]["model"] == "whisper-large-v3")
    job = job_of(whisper["request"])
    spent = step_time(job, ledger(job)).optimizer
    assert 0.8 < spent / whisper["step"] < 1.2
