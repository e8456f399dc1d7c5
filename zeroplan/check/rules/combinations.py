"""What DeepSpeed refuses although each key is known and each value is taken: the tables of zeroplan.deepspeed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from zeroplan.check.edit import Edits, deleted
from zeroplan.check.finding import ERROR, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules import answers
from zeroplan.check.rules.names import FP16, STAGE_2, STAGE_3
from zeroplan.check.rules.values import BF16
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.refusals import REFUSALS, Refusal
from zeroplan.deepspeed.refusals_older import REFUSALS as OLDER_REFUSALS
from zeroplan.deepspeed.refusals_older import RULE as OLDER
from zeroplan.deepspeed.refusals_optimizer import REFUSALS as OPTIMIZER_REFUSALS
from zeroplan.deepspeed.refusals_precision import REFUSALS as PRECISION_REFUSALS
from zeroplan.deepspeed.refusals_zenflow import REFUSALS as ZENFLOW_REFUSALS
from zeroplan.deepspeed.versions import is_within
from zeroplan.errors import ZeroplanError
from zeroplan.releases import number

ALL = (*REFUSALS, *PRECISION_REFUSALS, *OPTIMIZER_REFUSALS, *ZENFLOW_REFUSALS, *OLDER_REFUSALS)
TABLE = tuple(row for row in ALL if row.rule)


@cache
def _rows(version: str) -> tuple[Refusal, ...]:
    """Those of a version."""
    return tuple(row for row in TABLE if is_within(version, row.since, row.until))


def combinations(subject: Subject) -> Iterator[Hit]:
    """Each row of the tables whose condition holds. Of a value that DeepSpeed refuses another rule speaks."""
    facts = subject.facts
    for row in _rows(subject.setting.version):
        try:
            holds = row.holds(facts)
        except ZeroplanError:
            continue
        if holds:
            found, version = row.found.format(stage=facts.stage), f" {subject.setting.version}" if row.until else ""
            yield Hit(row.rule, subject.spelled(row.key), f"{found}: DeepSpeed{version} refuses that ({row.source})",
                      row.instead.removeprefix("write "), edits=_edits(subject, row))


def _edits(subject: Subject, row: Refusal) -> Edits:
    """Two have one right answer: a key of the optimizer that belongs to the top level, and a switch long gone."""
    path = subject.spelled(row.key)
    if row.rule == "ZP603":
        return answers.moved_to(subject, path, KEYS["gradient_clipping"], subject.stated(row.key))
    return deleted(subject.document, path) if row.rule == "ZP406" else ()


def _evidence(rule: str) -> str:
    return next(row.source for row in TABLE if row.rule == rule)


def _rule(name: str, title: str, bad: str, good: str, since: str | None = None, **options: str) -> Rule:
    return Rule(name, ERROR, title, _evidence(name), example(bad, **options), example(good, **options),
                since=_since(name) if since is None else since)  # fmt: skip


def _since(rule: str) -> str:
    """The first version in which a row of the rule holds."""
    firsts = [row.since for row in TABLE if row.rule == rule]
    return "" if "" in firsts else min(firsts, key=number)


CPU = ', "offload_optimizer": {"device": "cpu"%s}'
ADAM = ', "optimizer": {"type": "AdamW", "params": {"lr": 0.0001%s}}'
IN_FP16 = ('{"train_batch_size": 8, "fp16": {"enabled": true}, "zero_optimization": {"stage": 3, '
           '"stage3_gather_16bit_weights_on_model_save": true, "zero_quantized_gradients": true%s}}')  # fmt: skip
MASTERS = ('{"train_batch_size": 8, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true%s}, '
           '"zero_optimization": {"stage": 2%s}}')  # fmt: skip


def _stage_2(inside: str, beside: str = "") -> str:
    return (STAGE_2 % inside)[:-1] + beside + "}"


def _stage_3(inside: str, beside: str = "") -> str:
    return (STAGE_3 % inside)[:-1] + beside + "}"


def _optimizer(kind: str, params: str = "", beside: str = "") -> str:
    return BF16 % f', "optimizer": {{"type": "{kind}", "params": {{"lr": 0.0001{params}}}}}{beside}'


RULES: tuple[Rule, ...] = (
    _rule(OLDER, "What an older DeepSpeed refuses, and the newest takes",
          BF16 % ', "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 3}',
          BF16 % ', "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2}', version="0.18.9"),
    _rule("ZP121", "Something that is on without what it needs",
          BF16 % ', "data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": true}}}',
          BF16 % ', "data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": false}}}'),
    _rule("ZP209", "The script accumulates gradients while communication overlaps",
          '{"train_batch_size": 8, "bf16": {"enabled": true}, "managed_gradient_accumulation": false, '
          '"zero_optimization": {"stage": 1, "overlap_comm": true}}',
          _stage_2(', "overlap_comm": true', ', "managed_gradient_accumulation": false')),
    _rule("ZP305", "A dynamic loss scale with a floor or window that is not over 0",
          FP16 % ', "min_loss_scale": 0', FP16 % ', "min_loss_scale": 1'),
    _rule("ZP306", "fp16.loss_scale is negative, infinite or a switch",
          FP16 % ', "loss_scale": -1', FP16 % ', "loss_scale": 0', since="0.17.1"),
    _rule("ZP310", "bf16 optimizer states without bf16 master weights",
          '{"train_batch_size": 8, "bf16": {"enabled": true, "bf16_optimizer_states": true}, '
          '"zero_optimization": {"stage": 2}}', MASTERS % (', "bf16_optimizer_states": true', "")),
    _rule("ZP311", "16-bit master weights without ZeRO",
          '{"train_batch_size": 8, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true, '
          '"bf16_optimizer_states": true}, "zero_optimization": {"stage": 0}}',
          MASTERS % (', "bf16_optimizer_states": true', "")),
    _rule("ZP312", "16-bit master weights without DeepSpeed's Adam on the CPU",
          MASTERS % ("", ""), MASTERS % ("", CPU % "")),
    _rule("ZP313", "data_types.param_dtype is not the dtype that is enabled",
          BF16 % ', "data_types": {"param_dtype": "fp16"}', BF16 % ', "data_types": {"param_dtype": "bf16"}'),
    _rule("ZP314", "A dtype that DeepSpeed does not know",
          BF16 % ', "data_types": {"buffer_dtype": "foo"}', BF16 % ', "data_types": {"buffer_dtype": "float"}'),
    _rule("ZP315", "Gradients accumulated in another dtype at stage 0",
          BF16 % ', "data_types": {"grad_accum_dtype": "fp32"}', BF16 % ', "data_types": {"grad_accum_dtype": "bf16"}'),
    _rule("ZP318", "torch_autocast.dtype is no dtype",
          '{"train_batch_size": 8, "torch_autocast": {"enabled": true, "dtype": "tf32"}}',
          '{"train_batch_size": 8, "torch_autocast": {"enabled": true, "dtype": "bfloat16"}}'),
    _rule("ZP322", "Master weights in fp16 and in bf16",
          '{"train_batch_size": 8, "bf16": {"enabled": true, "bf16_master_weights_and_grads": true}, "fp16": '
          '{"fp16_master_weights_and_grads": true}, "zero_optimization": {"stage": 2' + CPU % "" + "}}",
          MASTERS % ("", CPU % "")),
    _rule("ZP323", "torch_autocast with quantized weights",
          '{"train_batch_size": 8, "torch_autocast": {"enabled": true, "dtype": "bfloat16"}, "zero_optimization": '
          '{"stage": 3, "zero_quantized_weights": true, "stage3_gather_16bit_weights_on_model_save": true}}',
          _stage_3(', "zero_quantized_weights": true')),
    _rule("ZP324", "data_types.keep_in_fp32_modules is neither auto nor a list of names",
          BF16 % ', "data_types": {"keep_in_fp32_modules": "rotary"}',
          BF16 % ', "data_types": {"keep_in_fp32_modules": ["rotary"]}'),
    _rule("ZP405", "An odd allgather_bucket_size", STAGE_2 % ', "allgather_bucket_size": 500000001',
          STAGE_2 % ', "allgather_bucket_size": 500000000'),
    _rule("ZP406", "The stage 1 of DeepSpeed before 0.5.9", STAGE_2 % ', "legacy_stage1": true',
          STAGE_2 % ', "legacy_stage1": false'),
    _rule("ZP417", "compute_grad_norm off beside something that needs the norm",
          STAGE_2 % ', "compute_grad_norm": false',
          _stage_2(', "compute_grad_norm": false', ', "gradient_clipping": 0')),
    _rule("ZP418", "Gradients summed where only their mean is supported",
          _stage_3("", ', "gradient_allreduce_op": "sum"'), _stage_2("", ', "gradient_allreduce_op": "sum"')),
    _rule("ZP419", "Scaled gradients with reduce_scatter", _stage_2("", ', "prescale_gradients": true'),
          _stage_2(', "reduce_scatter": false', ', "prescale_gradients": true')),
    _rule("ZP504", "NVMe without a path", STAGE_3 % ', "offload_param": {"device": "nvme"}',
          STAGE_3 % ', "offload_param": {"device": "nvme", "nvme_path": "/local_nvme"}'),
    _rule("ZP506", "Part of the optimizer offloaded below stage 3", STAGE_2 % (CPU % ', "ratio": 0.5'),
          STAGE_3 % (CPU % ', "ratio": 0.5')),
    _rule("ZP519", "ZenFlow without offload", STAGE_2 % ', "zenflow": {"topk_ratio": 0.1}',
          STAGE_2 % (CPU % "" + ', "zenflow": {"topk_ratio": 0.1}')),
    _rule("ZP522", "Part of an optimizer offloaded that DeepSpeed's Adam does not step",
          _stage_3(CPU % ', "ratio": 0.5', ', "optimizer": {"type": "Lion", "params": {"lr": 0.0001}}'),
          _stage_3(CPU % ', "ratio": 0.5', ADAM % "")),
    _rule("ZP523", "ZenFlow with settings that stop it",
          STAGE_2 % (CPU % "" + ', "zenflow": {"select_strategy": "step"}'),
          STAGE_2 % (CPU % "" + ', "zenflow": {"select_strategy": "step", "select_interval": 4}')),
    _rule("ZP603", "max_grad_norm as a parameter of the optimizer", _optimizer("AdamW", ', "max_grad_norm": 1.0'),
          _optimizer("AdamW", "", ', "gradient_clipping": 1.0')),
    _rule("ZP604", "An optimizer under ZeRO that DeepSpeed has not tested",
          _stage_2("", ', "optimizer": {"type": "SGD", "params": {"lr": 0.0001}}'),
          _stage_2("", ', "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_allow_untested_optimizer": true')),
    _rule("ZP607", "Lamb with a fixed loss scale",
          '{"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 128}, "optimizer": {"type": "Lamb"}}',
          '{"train_batch_size": 8, "fp16": {"enabled": true}, "optimizer": {"type": "Lamb"}}'),
    _rule("ZP608", "Muon at stage 3 with reduce_scatter",
          _stage_3("", ', "optimizer": {"type": "Muon", "params": {"lr": 0.0001}}'),
          _stage_3(', "reduce_scatter": false', ', "optimizer": {"type": "Muon", "params": {"lr": 0.0001}}')),
    _rule("ZP616", "A scheduler without params", BF16 % ', "scheduler": {"type": "WarmupLR"}',
          BF16 % ', "scheduler": {"type": "WarmupLR", "params": {}}'),
    _rule("ZP623", "Lamb with an offloaded optimizer",
          _stage_2(CPU % "", ', "optimizer": {"type": "Lamb"}, "zero_allow_untested_optimizer": true'),
          _stage_2("", ', "optimizer": {"type": "Lamb"}, "zero_allow_untested_optimizer": true')),
    _rule("ZP624", "amsgrad without torch_adam", _optimizer("Adam", ', "amsgrad": true'),
          _optimizer("AdamW", ', "amsgrad": true, "torch_adam": true')),
    _rule("ZP625", "legacy_fusion at stage 0 in 16 bit",
          BF16 % ', "optimizer": {"type": "AdamW", "legacy_fusion": true}',
          _stage_2("", ', "optimizer": {"type": "AdamW", "legacy_fusion": true}')),
    _rule("ZP627", "A Newton-Schulz iteration that Muon does not know", _optimizer("Muon", ', "ns_method": "cubic"'),
          _optimizer("Muon", ', "ns_method": "gram"')),
    _rule("ZP628", "A schedule of PyTorch's on an optimizer of DeepSpeed's",
          BF16 % ', "scheduler": {"type": "CosineAnnealingLR", "params": {"T_max": 10}}',
          BF16 % ', "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 10000}}'),
    _rule("ZP705", "Quantized gradients without reduce_scatter",
          IN_FP16 % ', "reduce_scatter": false', IN_FP16 % ""),
)  # fmt: skip

CHECKS = (combinations,)
