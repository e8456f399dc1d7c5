"""Keys whose effect no formula counts are named beside the numbers."""

from __future__ import annotations

import pytest

from zeroplan.deepspeed.read import read_config

NAMED = [
    ({"managed_gradient_accumulation": False}, "managed_gradient_accumulation"),
    ({"zero_optimization": {"stage": 3, "enable_sanity_checks": True}}, "zero_optimization.enable_sanity_checks"),
    ({"data_types": {"keep_in_fp32_modules": ["rotary_emb"]}}, "data_types.keep_in_fp32_modules"),
]
ZENFLOW = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"update_interval": 1}}
NAMED.append(({"zero_optimization": ZENFLOW, "optimizer": {"type": "Muon"}}, "zero_optimization.zenflow"))
"""It runs (seed 7137 of the fresh draws under Muon): its step takes the step's number."""
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
