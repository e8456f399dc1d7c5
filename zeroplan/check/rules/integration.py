"""8xx: what the Trainer, Accelerate and Lightning make of a config."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, said
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules.names import OK, STAGE_2
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.values import AUTO

ZERO = "zero_optimization"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP619", ERROR, "gradient_accumulation_steps under Lightning",
        "lightning 2.6: pytorch/strategies/deepspeed.py:_format_batch_size_and_grad_accum_config",
        example(OK[:-1] + ', "gradient_accumulation_steps": 4}', reader=LIGHTNING), example(OK, reader=LIGHTNING),
        "https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/deepspeed.html",
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
        example((STAGE_2 % "")[:-1] + ', "activation_checkpointing": {"partition_activations": true}}', reader=TRAINER),
        example(STAGE_2 % "", reader=TRAINER), ISSUE + "5704",
    ),
)  # fmt: skip


def accelerate(subject: Subject) -> Iterator[Hit]:
    """The Trainer makes Accelerate's plugin too; DeepSpeed itself takes the config, so that this is no error there."""
    if subject.setting.reader in (ACCELERATE, TRAINER) and ZERO not in subject.config:
        severity = WARNING if subject.setting.reader == TRAINER else ""
        yield Hit("ZP801", (), "no zero_optimization: Accelerate stops, and with it the Trainer",
                  '"zero_optimization": {"stage": 2}', severity)  # fmt: skip


def lightning(subject: Subject) -> Iterator[Hit]:
    name = "gradient_accumulation_steps"
    if subject.setting.reader == LIGHTNING and name in subject.config:
        yield Hit("ZP619", (name,), f"{name} here: Lightning stops, it takes its Trainer's accumulate_grad_batches",
                  "delete it")  # fmt: skip


def unfilled_autos(subject: Subject) -> Iterator[Hit]:
    """Under DeepSpeed itself those of bf16 and fp16 have a rule of their own."""
    for path, member in subject.document.members.items():
        known = KEYS.get(".".join(path))
        own = known is not None and known.default == AUTO
        stops = own and subject.setting.reader in (ACCELERATE, TRAINER)
        if member.node.scalar != AUTO or len(path) == 1 or (path[0] != ZERO and not stops):
            continue
        means_it = (own and not stops) or (known is not None and bool(known.auto) and subject.setting.fills)
        if not means_it and path[-1] != "enabled":
            severity = ERROR if subject.setting.reader == ACCELERATE or own else ""
            does = "Accelerate stops" if severity else "DeepSpeed drops it and takes its default"
            value = known.default if known is not None and not own else None
            write = f'"{path[-1]}": {said(value)}' if isinstance(value, int) else "delete it"
            yield Hit("ZP804", path, f'nothing fills "auto" here: {does}', write, severity)


def idle_checkpointing(subject: Subject) -> Iterator[Hit]:
    if subject.setting.reader == TRAINER and subject.config.get("activation_checkpointing"):
        yield Hit("ZP808", ("activation_checkpointing",), "models of transformers do not read it",
                  "gradient_checkpointing in TrainingArguments")  # fmt: skip


CHECKS = (accelerate, lightning, unfilled_autos, idle_checkpointing)
