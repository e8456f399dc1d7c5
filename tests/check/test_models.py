"""Rules that look at config and model together, beside what DeepSpeed 0.19.8 said of small Llamas (references/check)."""

from __future__ import annotations

import json
from functools import cache, partial

import pytest

from tests.check.deepspeed_models import LLAMA, QUANTIZED, offloaded
from tests.conftest import REFERENCES
from zeroplan.check.any_file import check_file
from zeroplan.request.check_setting import read_inputs, setting_of
from zeroplan.request.options import Options

BUFFER, CODES, DIVIDED = "More elements", "be a multiple of 8", "is not divisible by SP size"


@cache
def said(part):
    return json.loads((REFERENCES / "check" / "models.json").read_text(encoding="utf-8"))[part]


@pytest.fixture
def rules(tmp_path):
    """The rules that find something in a config beside a model of these widths."""

    def found(config, widths, ranks=None):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(LLAMA | widths), encoding="utf-8")
        known = read_inputs(Options(model=str(path), gpus=None if ranks is None else str(ranks)), reader="deepspeed")
        text = json.dumps(config)
        checked = check_file("ds_config.json", text, known.setting, lambda _name: None, partial(setting_of, known))
        return {one.rule for one in checked.findings}

    return found


def test_tensors_larger_than_a_buffer(rules):
    for ranks, size, answer in said("buffers"):
        assert ("ZP508" in rules(offloaded(size), {}, ranks)) == (BUFFER in answer), (ranks, size, answer)


def test_weights_that_cannot_be_quantized(rules):
    for widths, ranks, answer in said("quantized"):
        assert ("ZP707" in rules(QUANTIZED, widths, ranks)) == (CODES in answer), (widths, ranks, answer)


def test_heads_that_cannot_be_divided(rules):
    for heads, keys, ranks, answer in said("heads"):
        widths = {"hidden_size": 64 * heads, "num_attention_heads": heads, "num_key_value_heads": keys}
        config = {"train_micro_batch_size_per_gpu": 1, "data_parallel_size": 1, "sequence_parallel_size": ranks}
        assert ("ZP710" in rules(config, widths)) == (DIVIDED in answer), (heads, keys, ranks, answer)


@pytest.mark.parametrize(("part", "error"), [("buffers", BUFFER), ("quantized", CODES), ("heads", DIVIDED)])
def test_answers_are_of_both_kinds_and_of_nothing_else(part, error):
    answers = [row[-1] for row in said(part)]
    assert {error in answer for answer in answers} == {True, False}
    assert all(error in answer for answer in answers if answer)


def test_before_0_18_deepspeed_knows_no_experts(zeroplan, tmp_path):
    """deepspeed/runtime/zero/leaf_module_config.py, with Mixtral's blocks in it, came with 0.18.0."""
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}')
    job = ("--model", "mixtral-8x7b", "--gpus", "8")
    assert "ZP426" not in zeroplan("check", str(file), *job).out
    older = zeroplan("check", str(file), *job, "--deepspeed", "0.16.9")
    assert "ZP426" in older.out
    assert "set_z3_leaf_modules" in older.out
