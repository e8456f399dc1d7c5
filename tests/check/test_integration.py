"""An error exactly where accelerate or the Trainer stops: files drawn, and what the packages themselves said of them.

`tests.references.make_integration_reference` asked them. Values that DeepSpeed would refuse are not among those drawn.
"""

from __future__ import annotations

import json
from functools import cache, partial

import pytest

from tests.conftest import REFERENCES
from zeroplan.check.any_file import check_file
from zeroplan.check.arguments import read_arguments
from zeroplan.check.finding import ERROR
from zeroplan.request.check_setting import read_inputs, setting_of
from zeroplan.request.options import Options


@cache
def said():
    return json.loads((REFERENCES / "check" / "integration.json").read_text(encoding="utf-8"))


def errors(name, text, known, beside=None):
    checked = check_file(
        name, text, known.setting, lambda path: (path, beside) if path == "ds_config.json" else None,
        partial(setting_of, known),
    )  # fmt: skip
    return [one for one in checked.findings if one.severity == ERROR]


def test_files_for_accelerate_launch():
    known = read_inputs(Options())
    for text, config, stopped in said()["launch"]:
        found = errors("accelerate.yaml", text, known, json.dumps(config))
        assert bool(found) == bool(stopped), (text, config, stopped, found)


def test_training_arguments():
    for config, stated, stopped in said()["trainer"]:
        arguments = read_arguments("args.json", json.dumps(stated))
        found = errors("ds_config.json", json.dumps(config), read_inputs(Options(gpus="1"), arguments=arguments))
        assert bool(found) == bool(stopped), (config, stated, stopped, found)
        assert not stopped or {"ZP205", "ZP620"} & {one.rule for one in found}


@pytest.mark.parametrize(
    ("rule", "part"),
    [("ZP802", "following accelerate config variables will be ignored"), ("ZP811", "had unknown keys"),
     ("ZP811", "object has no attribute 'lower'"), ("ZP811", "A `distributed_type` must be specified"),
     ("ZP811", "Unknown mixed_precision mode"), ("ZP811", "Expected a string path"),
     ("ZP801", "Please specify the ZeRO optimization config")],
)  # fmt: skip
def test_for_the_same_reason(rule, part):
    cases = [case for case in said()["launch"] if part in case[2]]
    assert len(cases) >= 3
    for text, config, _stopped in cases:
        found = errors("accelerate.yaml", text, read_inputs(Options()), json.dumps(config))
        assert rule in {one.rule for one in found}, (text, config)


def test_draws_are_of_both_kinds():
    for kind in ("launch", "trainer"):
        stopped = sum(bool(case[2]) for case in said()[kind])
        assert len(said()[kind]) >= 300
        assert 50 <= stopped <= len(said()[kind]) - 50


OFFLOADED = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}%s}'


@pytest.mark.parametrize(
    ("more", "options", "severity"),
    [("", (), "advice"), ("", ("--client-optimizer", "yes"), "warning"), ("", ("--optimizer", "sgd"), "error"),
     ("", ("--client-optimizer", "no"), None), (', "zero_force_ds_cpu_optimizer": false', (), None),
     (', "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}', (), None)],
)  # fmt: skip
def test_lightnings_own_optimizer_beside_an_offloaded_one(zeroplan, tmp_path, more, options, severity):
    """lightning 2.6.6 pytorch/strategies/deepspeed.py hands configure_optimizers' to deepspeed.initialize as it is, which
    stops (runtime/engine.py:_configure_optimizer) at all but DeepSpeedCPUAdam.
    """
    (tmp_path / "ds.json").write_text(OFFLOADED % more, encoding="utf-8")
    ran = zeroplan("check", str(tmp_path / "ds.json"), "--for", "lightning", "--format", "json", *options)
    assert [one["severity"] for one in ran.json["findings"] if one["rule"] == "ZP516"] == ([severity] if severity else [])
