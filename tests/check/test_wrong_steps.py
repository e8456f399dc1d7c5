"""Releases that train otherwise than a config says, as one optimizer step in each of 28 releases showed
(tests/references/make_steps_by_release.py).
"""

from __future__ import annotations

import json

import pytest

from tests.references.make_muon_by_release import CASES as MUON_CASES
from tests.references.make_muon_by_release import WRITTEN as MUON_WRITTEN
from tests.references.make_steps_by_release import CASES, WRITTEN

MUON = json.loads(MUON_WRITTEN.read_text())
STEPS = json.loads(WRITTEN.read_text())
RULES = ("ZP327", "ZP428", "ZP529", "ZP717")


def right(case):
    """Minus 1 over the micro-batches of a step in each weight that saw one."""
    config, seen = CASES[case]
    return [-1.0 / config["gradient_accumulation_steps"]] * min(seen, 4) + [0.0] * (4 - min(seen, 4))


@pytest.mark.parametrize("version", STEPS)
def test_what_is_said_of_each_release_is_what_it_does(version, check_files):
    for case, weights in STEPS[version].items():
        config, _seen = CASES[case]
        ran = check_files({"ds.json": json.dumps(config)}, "--deepspeed", version, "--format", "concise", "--for", "deepspeed")
        told = [rule for rule in RULES if f"warning {rule}" in ran.out]
        assert bool(told) == (weights != right(case)), (case, weights, ran.out)


def test_an_accumulation_that_is_not_known_is_advised(check_files):
    text = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    ran = check_files({"ds.json": text, "args.yaml": "gradient_accumulation_steps: 4\nbf16: true\nper_device_train_batch_size: 1\n"},
                      "--deepspeed", "0.18.2", "--for", "hf", "--format", "concise")  # fmt: skip
    assert "advice ZP428: DeepSpeed 0.18.2 trains on the last of the micro-batches alone" in ran.out
    ran = check_files({"ds.json": text}, "--deepspeed", "0.18.2", "--for", "hf", "--format", "concise", "--trainer-args", "args.yaml")
    assert "warning ZP428: DeepSpeed 0.18.2 trains on the last of 4 micro-batches alone" in ran.out


@pytest.mark.parametrize("version", MUON)
def test_muon_in_each_release(version, check_files):
    for case, (stage, offloads) in MUON_CASES.items():
        zero = {"stage": stage, **({"offload_optimizer": {"device": "cpu", "pin_memory": False}} if offloads else {})}
        config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero,
                  "optimizer": {"type": "Muon", "params": {"lr": 0.002, "weight_decay": 0.01}}}  # fmt: skip
        ran = check_files({"ds.json": json.dumps(config)}, "--deepspeed", version, "--format", "concise", "--for", "deepspeed")
        seen = MUON[version][case]
        told = "warning ZP631" in ran.out or "warning ZP632" in ran.out
        assert (" error ZP" in ran.out, told) == (isinstance(seen, str), seen == 0), (case, seen, ran.out)
