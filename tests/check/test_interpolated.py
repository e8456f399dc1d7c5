"""Values of YAML that OmegaConf puts in: named as not known, and not judged."""

from __future__ import annotations

import json

import pytest

HYDRA = """defaults:
  - _self_
trainer: {lr: 0.001}
deepspeed:
  train_micro_batch_size_per_gpu: ${trainer.batch_size}
  gradient_accumulation_steps: ${oc.env:STEPS,4}
  zero_optimization:
    stage: ${stage}
    offload_param: {device: cpu}
    offload_optimizer: ${offload}
  optimizer:
    type: AdamW
    params: {lr: 0.1}
"""
ARGUMENTS = "output_dir: ${run.dir}\nnum_train_epochs: 1\n"
CONFIG = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
          "zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}  # fmt: skip


@pytest.fixture
def check(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps(CONFIG), encoding="utf-8")

    def run(text, *options):
        (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
        return zeroplan("check", "run.yaml", *options)

    return run


@pytest.mark.parametrize("whole", [True, False])
def test_what_stands_for_another_value_is_named_and_not_judged(check, whole):
    """Run: omegaconf 2.4.0 makes 4, "2" and 3 of the first three where batch_size is 4, STEPS=2 and stage 3."""
    text = HYDRA if not whole else "\n".join(line[2:] for line in HYDRA.partition("deepspeed:\n")[2].split("\n"))
    ran = check(text)
    assert (ran.code, "ZP" in ran.out) == (0, False)
    line = 1 if whole else 5
    decided = "train_micro_batch_size_per_gpu, gradient_accumulation_steps, zero_optimization.stage, ..."
    assert f"run.yaml:{line}: what ${{...}} stands for decides {decided}: what goes with that is not checked\n" in ran.out


def test_names_and_other_values_are_still_checked(check):
    ran = check(HYDRA.replace("offload_param:", "overlap_com: true\n    offload_param:").replace("lr: 0.1", "lr: x"), "--format", "json")
    assert {one["path"] for one in ran.json["findings"]} >= {"zero_optimization.overlap_com"}
    assert all("${" not in one["message"] for one in ran.json["findings"])


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("learning_rate", "0.1", "ZP620"), ("learning_rate", "${lr}", ""),
        ("per_device_train_batch_size", "2", "ZP205"), ("per_device_train_batch_size", "${batch}", ""),
        ("bf16", "false", "ZP620"), ("bf16", "${oc.env:BF16}", ""),
        ("optim", "adafactor", ""), ("optim", "${optim}", ""),
    ],
)  # fmt: skip
def test_arguments_of_another_file_are_not_compared(check, name, value, rule):
    """With a number the Trainer compares (integrations/deepspeed.py: fill_match); what is put in is not known here."""
    stated = {"learning_rate": "0.5", "per_device_train_batch_size": "4", "bf16": "true", name: value}
    ran = check(f"{ARGUMENTS}deepspeed: ds.json\n" + "".join(f"{key}: {text}\n" for key, text in stated.items()), "--format", "json")
    errors = [one["rule"] for one in ran.json["findings"] if one["severity"] == "error"]
    assert errors == ([rule] if rule else [])


def test_a_config_inside_arguments(check):
    config = "deepspeed:\n  train_micro_batch_size_per_gpu: ${b}\n  zero_optimization: {stage: 2, overlap_com: true}\n"
    ran = check(f"{ARGUMENTS}bf16: true\n{config}", "--format", "json")
    assert [(one["rule"], one["line"]) for one in ran.json["findings"]] == [("ZP108", 6)]


def test_a_config_of_another_file_is_said(check):
    ran = check(f"{ARGUMENTS}deepspeed: ${{ds.path}}\n")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith('zeroplan: run.yaml:3:12: found deepspeed: "${ds.path}", which stands for what another file says')
