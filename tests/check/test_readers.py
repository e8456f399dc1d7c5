"""Findings that depend on who reads the config: DeepSpeed alone, Accelerate, or the Trainer."""

from __future__ import annotations

import json

import pytest

from zeroplan.check.arguments import read_arguments
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


def test_accumulation_that_only_the_arguments_state():
    """accelerate utils/dataclasses.py:1274 writes 1 where the file has none; the Trainer's total has its own in it."""
    arguments = read_arguments("args.json", '{"gradient_accumulation_steps": 4, "bf16": true, "per_device_train_batch_size": 1}')
    both = {**BASE, "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}
    assert severities(both, "ZP205", reader=TRAINER, arguments=arguments) == [ERROR]
    assert severities(BASE, "ZP205", reader=TRAINER, arguments=arguments) == [WARNING]
    assert severities({**both, "gradient_accumulation_steps": "auto"}, "ZP205", reader=TRAINER, arguments=arguments) == []


def test_a_total_of_sequence_groups():
    """transformers integrations/deepspeed.py fills in world · micro · steps; runtime/config.py divides the world."""
    split = {**BASE, "train_batch_size": "auto", "sequence_parallel_size": 2}
    assert severities(split, "ZP208", reader=TRAINER) == [ERROR]
    assert severities({**split, "train_batch_size": 4}, "ZP208", reader=DEEPSPEED) == [WARNING]


@pytest.mark.parametrize("path", ["zero_optimization.allgather_bucket_size", "fp16.loss_scale", "flops_profiler.enabled", "mine"])
@pytest.mark.parametrize("reader", [ACCELERATE, TRAINER])
def test_an_auto_that_nothing_fills(path, reader):
    """accelerate utils/dataclasses.py:fill_match raises for any that it has no value for, at any depth; one error says so."""
    config = json.loads(json.dumps(BASE))
    section = config
    *outer, name = path.split(".")
    for part in outer:
        section = section.setdefault(part, {})
    section[name] = "auto"
    found = check_text("ds.json", json.dumps(config), Setting(reader=reader))
    assert [one.severity for one in found if one.path == path and one.severity == ERROR] == [ERROR]


@pytest.mark.parametrize("key", ["stage", "stage3_gather_16bit_weights_on_model_save"])
def test_an_auto_that_accelerate_fills(key):
    """accelerate utils/dataclasses.py:DeepSpeedPlugin.__post_init__, from its environment or with its own default."""
    config = {**BASE, "zero_optimization": {"stage": 2, key: "auto", "offload_optimizer": {"device": "auto", "nvme_path": "auto"}}}
    assert severities(config, "ZP804", reader=TRAINER) == []
    assert severities(config, "ZP401", reader=TRAINER) == []


def test_an_accelerator_alone_fills_no_betas():
    """Whether a Trainer runs in what Accelerate launches, its file does not say."""
    config = {**BASE, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}}}
    assert severities(config, "ZP804", reader=ACCELERATE) == [WARNING]
    assert severities(config, "ZP804", reader=TRAINER) == []
