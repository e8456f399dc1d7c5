"""Findings that depend on who reads the config: DeepSpeed alone, Accelerate, or the Trainer."""

from __future__ import annotations

import json

import pytest

from zeroplan.check.check import check_text
from zeroplan.check.finding import ADVICE, ERROR, WARNING
from zeroplan.check.setting import ACCELERATE, DEEPSPEED, TRAINER, Setting

BASE = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
QUOTED = {**BASE, "bf16": {"enabled": "true"}}
FLOW = {**BASE, "bf16": {"enabled": True}, "zero_optimization": {
    "stage": 2, "offload_optimizer": {"device": "cpu"},
    "zenflow": {"update_interval": 4, "select_strategy": "auto", "select_interval": "auto"}}}  # fmt: skip


def severities(config, rule, **setting):
    found = check_text("ds.json", json.dumps(config), Setting(**setting))
    return [one.severity for one in found if one.rule == rule]


@pytest.mark.parametrize(("reader", "severity"), [(DEEPSPEED, WARNING), (ACCELERATE, WARNING), (TRAINER, ERROR)])
def test_a_switch_in_quotes(reader, severity):
    """transformers integrations/deepspeed.py:fill_match compares "true" with True; accelerate reads it by its letters."""
    assert severities(QUOTED, "ZP110", reader=reader) == [severity]


@pytest.mark.parametrize(("reader", "count"), [(DEEPSPEED, 0), (ACCELERATE, 2), (TRAINER, 2)])
def test_an_auto_of_deepspeeds_own(reader, count):
    """accelerate utils/dataclasses.py:fill_match raises for every "auto" that it has no value for."""
    assert severities(FLOW, "ZP804", reader=reader) == [ERROR] * count


def test_no_precision_at_all():
    """Accelerate adds what mixed_precision says; what that is, TrainingArguments or an option say."""
    assert severities(BASE, "ZP309", reader=DEEPSPEED) == [WARNING]
    assert severities(BASE, "ZP309", reader=TRAINER) == [ADVICE]
    assert severities(BASE, "ZP309", reader=TRAINER, precision="bf16") == []
    assert severities(BASE, "ZP309", reader=TRAINER, precision="fp32") == [WARNING]
    assert severities(BASE, "ZP309", reader=ACCELERATE) == []


def test_false_is_written_as_json_has_it():
    config = {**BASE, "zero_optimization": {"stage": 2, "round_robin_gradients": "auto"}}
    found = check_text("ds.json", json.dumps(config), Setting(reader=TRAINER))
    assert [one.write for one in found if one.rule == "ZP804"] == ['"round_robin_gradients": false']


def test_autotp_reads_its_own_size():
    nested = {**BASE, "tensor_parallel": {"tensor_parallel": {"tp_size": 2}}}
    assert severities(nested, "ZP713") == [WARNING]
    assert severities({**BASE, "tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 2}}}, "ZP713") == []


def test_a_word_in_capitals_is_no_size():
    """A template's word, with an underscore or without."""
    found = check_text("ds.json", json.dumps({**BASE, "train_micro_batch_size_per_gpu": "MBSIZE"}), Setting())
    assert [one.severity for one in found if one.path == "train_micro_batch_size_per_gpu"] == [ERROR]
    assert [one.rule for one in found if one.path == "train_micro_batch_size_per_gpu"] == ["ZP104"]
