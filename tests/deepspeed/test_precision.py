"""A config without a precision section, as Accelerate fills it (utils/dataclasses.py:set_mixed_precision, asked here)."""

from __future__ import annotations

import copy

import pytest

from zeroplan.deepspeed.precision import filled, says_nothing

CONFIGS = {
    "nothing": {},
    "bf16 off": {"bf16": {"enabled": False}},
    "fp16 off": {"fp16": {"enabled": False}},
    "bf16 that says nothing": {"bf16": {}},
    "bf16 on": {"bf16": {"enabled": True}},
    "fp16 on": {"fp16": {"enabled": True}},
    "the old name, on": {"bfloat16": {"enabled": True}},
    "the old name, off": {"bfloat16": {"enabled": False}},
    "both off": {"bf16": {"enabled": False}, "fp16": {"enabled": False}},
}


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16", "fp8"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_accelerate_fills_the_same(config, precision):
    pytest.importorskip("deepspeed")
    accelerate = pytest.importorskip("accelerate.utils")
    plugin = accelerate.DeepSpeedPlugin(hf_ds_config={**copy.deepcopy(config), "zero_optimization": {"stage": 2}})
    try:
        plugin.set_mixed_precision(precision)
    except ValueError:
        assert filled(config, precision) is config  # both would be on: the option contradicts the file
        return
    ours = filled(config, precision)
    for name in ("bf16", "fp16"):
        theirs = plugin.deepspeed_config[name].get("enabled", False)
        assert ours.get(name, {}).get("enabled", False) == theirs, name


def test_what_is_written_stays():
    off = {"bf16": {"enabled": False}}
    assert filled(off, "bf16") is off
    assert filled({}, None) == filled({}, "fp32") == {}
    assert says_nothing({"zero_optimization": {}})
    assert not says_nothing(off)
