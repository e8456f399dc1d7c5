"""Draws of unusual keys, and whether the two generators leave out a key that moves bytes."""

from __future__ import annotations

import json

import pytest

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys import KEYS
from zeroplan.verify import cases, unusual
from zeroplan.verify.unusual import draw

DRAWN = [draw(seed) for seed in range(600)]
NOT_DRAWN = {
    "the case's own": ("train_batch_size", "train_micro_batch_size_per_gpu"),
    "an old name": ("allgather_size", "zero_optimization.cpu_offload", "zero_optimization.cpu_offload_param"),
    "saving and loading": (
        "checkpoint", "zero_optimization.stage3_gather", "zero_optimization.pipeline_loading_checkpoint",
    ),
    "runs of their own": ("activation_checkpointing",),
    "not counted, and named so": (
        "managed_gradient_accumulation", "sequence_parallel_size", "seq_parallel", "data_parallel_size",
        "data_types.keep_in_fp32_modules", "torch_autocast.lower_precision_safe_modules",
        "zero_optimization.enable_sanity_checks", "zero_optimization.save_muon_momentum_buffer_in_memory",
        "zero_optimization.offload_optimizer.super_offload", "tensor_parallel", "pipeline", "hybrid_engine",
        "expert_parallel", "compile", "data_efficiency", "weight_quantization",
    ),
}  # fmt: skip
"""Keys that move bytes, by their beginnings, and why no generator draws them."""


def paths(section, prefix=""):
    for name, value in section.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from paths(value, f"{prefix}{name}.")


def stated(drawn):
    return {path for case in drawn for path in paths(case["ds_config"])}


def test_a_seed_is_a_case():
    assert draw(7) == draw(7) != draw(8)


def test_a_case_is_json():
    assert json.loads(json.dumps(DRAWN)) == DRAWN


def test_every_row_is_drawn():
    assert stated(DRAWN) >= {row.path for row in unusual.KEYS}


def test_several_together():
    rare = {row.path for row in unusual.KEYS}
    counts = [sum(path in rare for path in paths(case["ds_config"])) for case in DRAWN]
    assert sum(count >= 3 for count in counts) > len(counts) / 2


@pytest.mark.parametrize("row", unusual.KEYS, ids=lambda row: row.path)
def test_a_row_is_a_key_of_deepspeed(row):
    assert row.path in KEYS


def test_the_generators_draw_every_key_that_moves_bytes():
    drawn = stated(DRAWN) | stated(cases.draw(seed) for seed in range(600))
    left_out = tuple(start for starts in NOT_DRAWN.values() for start in starts)
    moving = {known.path for known in KEYS.values() if known.moves_bytes}
    assert {path for path in moving - drawn if not path.startswith(left_out)} == set()
    assert not drawn & {path for path in moving if path.startswith(left_out)}


def test_conditions_are_asked_of_what_has_been_drawn():
    """A row that fits no longer, once another has been drawn, is left out: autocast beside 16-bit weights for one."""
    for case in DRAWN:
        facts = Facts(case["ds_config"], "case")
        assert not (facts.section("torch_autocast") and facts.dtype != "fp32")
