"""8xx: what the Trainer, Accelerate and Lightning make of a config."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules.names import OK, STAGE_2
from zeroplan.check.rules.values import BF16
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.read import autos

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP619", ERROR, "Lightning wants a scheduler beside an optimizer", "lightning: strategies/deepspeed.py",
        example(BF16 % ', "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}}', reader=LIGHTNING),
        example(BF16 % ', "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}}, "scheduler": {"type": "WarmupLR", '
                '"params": {}}', reader=LIGHTNING),
    ),
    Rule(
        "ZP801", ERROR, "Accelerate wants zero_optimization", "accelerate: utils/dataclasses.py:DeepSpeedPlugin",
        example(OK, reader=ACCELERATE), example(STAGE_2 % "", reader=ACCELERATE),
    ),
    Rule(
        "ZP804", WARNING, '"auto" for a key that nothing fills', "run: DeepSpeed drops it and takes its default",
        example('{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, '
                '"allgather_bucket_size": "auto"}}', reader=TRAINER),
        example('{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, '
                '"reduce_bucket_size": "auto"}}', reader=TRAINER),
                "https://github.com/huggingface/accelerate/issues/1644",
    ),
    Rule(
        "ZP808", ADVICE, "activation_checkpointing under the Trainer", "models of transformers do not call DeepSpeed's",
        example('{"train_batch_size": "auto", "bf16": {"enabled": true}, "activation_checkpointing": '
                '{"partition_activations": true}}', reader=TRAINER),
        example('{"train_batch_size": "auto", "bf16": {"enabled": true}}', reader=TRAINER), ISSUE + "5704",
    ),
)  # fmt: skip


def accelerate(subject: Subject) -> Iterator[Hit]:
    if subject.setting.reader == ACCELERATE and "zero_optimization" not in subject.config:
        yield Hit("ZP801", (), "no zero_optimization: Accelerate stops", '"zero_optimization": {"stage": 2}')


def lightning(subject: Subject) -> Iterator[Hit]:
    config = subject.config
    if subject.setting.reader == LIGHTNING and "optimizer" in config and "scheduler" not in config:
        yield Hit("ZP619", ("optimizer",), "optimizer without scheduler: Lightning refuses that",
                  '"scheduler": {"type": "WarmupLR", "params": {}}')  # fmt: skip


def unfilled_autos(subject: Subject) -> Iterator[Hit]:
    """Under DeepSpeed itself those of bf16 and fp16 have a rule of their own."""
    for path in autos(subject.config):
        known = KEYS.get(path)
        filled = known is not None and bool(known.auto) and subject.setting.fills
        if not filled and not path.endswith(".enabled") and path.startswith("zero_optimization."):
            severity = ERROR if subject.setting.reader == ACCELERATE else ""
            does = "Accelerate stops" if severity else "DeepSpeed drops it and takes its default"
            value = known.default if known is not None else None
            name = path.rpartition(".")[2]
            yield Hit("ZP804", tuple(path.split(".")), f'nothing fills "auto" here: {does}',
                      f'"{name}": {value}' if isinstance(value, int) else "delete it", severity)  # fmt: skip


def idle_checkpointing(subject: Subject) -> Iterator[Hit]:
    if subject.setting.reader == TRAINER and subject.config.get("activation_checkpointing"):
        yield Hit("ZP808", ("activation_checkpointing",), "models of transformers do not read it",
                  "gradient_checkpointing in TrainingArguments")  # fmt: skip


CHECKS = (accelerate, lightning, unfilled_autos, idle_checkpointing)
