"""The course of a step: its largest moments are the ledger's peaks, and between them bytes add up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.jobs import job
from zeroplan.costs.ledger import ledger
from zeroplan.costs.step_timeline import step_timeline
from zeroplan.ledger import total
from zeroplan.specs.strategy import Offload

JOBS = [
    ("gpt2", {"stage": 0}),
    ("gpt2", {"stage": 1, "grad_accum": 3}),
    ("llama-3.2-1b", {"stage": 2, "checkpointing": "full"}),
    ("llama-3.2-1b", {"stage": 2, "offload_optimizer": Offload("cpu"), "grad_accum": 2}),
    ("llama-3.2-1b", {"stage": 3}),
    ("llama-3.2-1b", {"stage": 3, "checkpointing": "full", "memory_efficient_linear": False}),
    ("gemma-2-2b", {"stage": 3, "offload_param": Offload("cpu"), "offload_optimizer": Offload("cpu")}),
    ("mixtral-8x7b", {"stage": 3}),
    ("llama-3.2-1b", {"stage": 3, "checkpointing": "selective"}),
    # backward's largest moment is its first, before any of its operators has run
    ("qwen3-0.6b", {"stage": 3, "gpus": 16, "seq": 512, "quantized_weights": True, "max_live_parameters": 10**8,
                    "kernels": "liger"}),
]


@pytest.mark.parametrize(("name", "strategy"), JOBS)
def test_its_largest_moments_are_the_peaks(name, strategy):
    one = job(name, **strategy)
    found, gpu = step_timeline(one), ledger(one).gpu
    assert [*dict.fromkeys(instant.phase for instant in found)] == ["init", "forward", "backward", "step"]
    for phase in ("init", "forward", "backward", "step"):
        fullest = max((instant for instant in found if instant.phase == phase), key=lambda instant: instant.bytes)
        worst = gpu.worst(phase)
        assert (fullest.bytes, fullest.place) == (total(worst.lines), worst.place)


def test_activations_rise_layer_by_layer_and_fall_again():
    """GPT-2 at stage 0: what a layer keeps is 12 times the same in forward."""
    found = step_timeline(job("gpt2", stage=0))
    forward = [instant for instant in found if instant.phase == "forward"]
    last = {f"transformer.h.{layer}": 0 for layer in range(12)}
    for instant in forward:
        layer = ".".join(instant.place.split(".")[:3])
        if layer in last:
            last[layer] = instant.activations
    ends = list(last.values())
    assert len({after - before for before, after in pairwise(ends)}) == 1
    assert found[-1].activations == 0


def test_what_is_held_is_there_throughout():
    one = job("llama-3.2-1b", stage=2)
    held = total(ledger(one).gpu.resident)
    assert {instant.held for instant in step_timeline(one) if instant.phase in ("forward", "backward")} == {held}
