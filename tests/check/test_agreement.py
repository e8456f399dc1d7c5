"""An error exactly where DeepSpeed 0.19.8 refuses: one-change configs, and drawn ones (tests/references/check).

`make_check_references.py` asked DeepSpeed itself; both files hold what it answered, not what `check` says.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.conftest import REFERENCES
from zeroplan.check.check import check_text
from zeroplan.check.finding import ERROR, WARNING
from zeroplan.check.setting import Setting

ENVIRONMENT = {"accelerator": "cpu", "gpus": 1}
"""As the one-change configs were run."""
SILENT = {
    "unknown top-level key (typo)": "ZP105",
    "aio section with only typo keys": "ZP510",
    "stage3 key in stage2": "ZP402",
    "zero_optimization: true": "ZP115",
    "cpu_offload deprecated": "ZP408",
    "offload_optimizer nvme z2": "ZP505",
    "offload_optimizer nvme z1": "ZP505",
    "bf16 and bfloat16": "ZP307",
    "no precision section z2 (fp32)": "ZP309",
    "auto sub_group_size raw": "ZP804",
    "scheduler warmup_type typo": "ZP614",
    "lr_scheduler key (typo of scheduler)": "ZP617",
    "elastic_checkpoint z3": "ZP407",
    "hpz in z2": "ZP704",
    "offload_optimizer cpu torch_adam": "ZP517",
    "super_offload z2": "ZP518",
    "activation_checkpointing typo key": "ZP105",
}
"""What runs and is not what its author meant."""


def read(name):
    return json.loads((REFERENCES / "check" / name).read_text(encoding="utf-8"))


@cache
def changes():
    return read("one_change.json")["rows"]


@cache
def draws():
    return read("draws.json")["draws"]


def errors(config, **options):
    findings = check_text("ds_config.json", json.dumps(config), Setting(**options))
    return [one for one in findings if one.severity == ERROR]


@pytest.mark.parametrize("row", changes(), ids=lambda row: row["case"])
def test_one_change(row):
    """The reason too: the rule is about the key that was changed, and its message says what DeepSpeed's says."""
    found = errors(row["config"], **ENVIRONMENT, client_optimizer=row["client_optimizer"])
    assert bool(found) == bool(row["said"]) == bool(row["rule"])
    if found:
        assert row["rule"] in {one.rule for one in found}


@pytest.mark.parametrize(("case", "rule"), SILENT.items(), ids=lambda value: value)
def test_silent_traps_are_warnings(case, rule):
    row = next(row for row in changes() if row["case"] == case)
    findings = check_text("ds_config.json", json.dumps(row["config"]), Setting(**ENVIRONMENT))
    assert (rule, WARNING) in {(one.rule, one.severity) for one in findings}


def test_draws():
    missed = [(seed, said) for seed, config, said in draws() if said and not errors(config, gpus=1, client_optimizer=True)]
    alarms = [seed for seed, config, said in draws() if not said and errors(config, gpus=1, client_optimizer=True)]
    assert missed == []
    assert alarms == []


def test_draws_are_of_both_kinds():
    refused = sum(bool(said) for _seed, _config, said in draws())
    assert len(draws()) >= 2000
    assert len(draws()) / 4 < refused < 3 * len(draws()) / 4
