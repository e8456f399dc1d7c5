"""An older DeepSpeed that takes what the newest refuses: 0.16.9 and 0.18.9 read a config with amp, and 0.16.9 one with a loss scale in
bf16 (DeepSpeedConfig of each, run); 0.19.8 refuses both.
"""

from __future__ import annotations

import pytest

AMP = '{"train_micro_batch_size_per_gpu": 1, "amp": {"enabled": false}, "bf16": {"enabled": true}}'
SCALE = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true, "loss_scale": 0}}'
NONE = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 7}}'
LINE = "no file states a release of DeepSpeed, and 0.19.8 is meant; %s stops at none of this"


@pytest.mark.parametrize(("config", "version"), [(AMP, "0.18.9"), (SCALE, "0.16.9")])
def test_an_older_one_that_takes_it(check_files, config, version):
    ran = check_files({"ds_config.json": config})
    assert ran.code == 1
    assert LINE % version in ran.out
    assert check_files({"ds_config.json": config}, "--deepspeed", version, "--fail-on", "error").code == 0


def test_where_a_project_states_one(check_files, tmp_path):
    (tmp_path / "requirements.txt").write_text("deepspeed==0.19.8\n")
    assert "is meant" not in check_files({"ds_config.json": AMP}).out


def test_where_none_takes_it_or_an_option_states_one(check_files):
    assert "is meant" not in check_files({"ds_config.json": NONE}).out
    assert "is meant" not in check_files({"ds_config.json": AMP}, "--deepspeed", "0.19.8").out
