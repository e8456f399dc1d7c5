"""Keys whose effect no formula counts are named beside the numbers."""

from __future__ import annotations

import pytest

from zeroplan.deepspeed.read import read_config

NVME = {"device": "nvme", "nvme_path": "/nvme"}
NAMED = [
    ({"zero_optimization": {"stage": 3, "enable_sanity_checks": True}}, "zero_optimization.enable_sanity_checks"),
    ({"zero_optimization": {"stage": 3, "zero_quantized_nontrainable_weights": True}},
     "zero_optimization.zero_quantized_nontrainable_weights"),
    ({"data_types": {"keep_in_fp32_modules": ["rotary_emb"]}}, "data_types.keep_in_fp32_modules"),
    ({"zero_optimization": {"stage": 3, "offload_param": NVME}, "aio": {"use_gds": True}}, "aio.use_gds"),
]  # fmt: skip
ZENFLOW = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"update_interval": 1}}
SILENT = [
    {"zero_optimization": ZENFLOW, "optimizer": {"type": "AdamW"}},
    {"managed_gradient_accumulation": True},
    {"zero_optimization": {"stage": 2, "enable_sanity_checks": True}},
    {"zero_optimization": {"stage": 3, "enable_sanity_checks": False}},
    {"data_types": {"keep_in_fp32_modules": "auto"}},
]


@pytest.mark.parametrize(("config", "name"), NAMED, ids=str)
def test_what_is_not_counted_is_named(config, name):
    assert read_config(config, "ds_config.json").fields["uncounted"] == (name,)


@pytest.mark.parametrize("config", SILENT, ids=str)
def test_what_does_nothing_is_not(config):
    assert "uncounted" not in read_config(config, "ds_config.json").fields


SAID = [
    ({"gradient_cliping": 1.0}, "gradient_cliping: DeepSpeed 0.19.8 knows no such key and passes over it"),
    ({"moe": {"enabled": True}}, "moe: DeepSpeed 0.19.8 knows no such key and passes over it"),
    ({"checkpoint": {"wrter": {}}}, "checkpoint.wrter: DeepSpeed 0.19.8 knows no such key and passes over it"),
    ({"optimizer": {"type": "AdamW", "params": {"torch_adam": True, "fused": True}}},
     "optimizer.params.fused: handed on to the optimizer, and in no number"),
    ({"pipeline": {"seed_layers": True}}, "pipeline does nothing for a model of transformers: a PipelineModule alone "
     "reads it, which is not planned"),
    ({"wall_clock_breakdown": True}, "wall_clock_breakdown: DeepSpeed waits for the card at each of its marks, which is "
     "in no step time"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "note"), SAID, ids=str)
def test_what_is_passed_over_is_said(config, note):
    assert note in read_config(config, "ds_config.json").notes


def test_notes_of_the_author_are_no_keys():
    assert read_config({"_note": 1, "//": "mine", "$schema": "x"}, "ds_config.json").notes == ()
