"""8xx: what the Trainer, Accelerate and Lightning make of a config."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, said
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules.elsewhere import likely
from zeroplan.check.rules.names import OK, STAGE_2
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.names import ACCELERATE_FILLS
from zeroplan.deepspeed.values import AUTO, stops
from zeroplan.releases import number

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu")
"""Keys at whose "auto" DeepSpeed itself stops."""

ZERO = "zero_optimization"
PLUGIN_SINCE = "4.29.0"
"""The transformers whose Trainer makes Accelerate's plugin (training_args.py; 4.28.1 does not)."""
OF_THE_TRAINER = ("optimizer.params.betas", "optimizer.params.eps")
"""What the Trainer fills and Accelerate alone does not (accelerate: accelerator.py:_prepare_deepspeed)."""

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
        "ZP804", WARNING, '"auto" for a key that nothing fills',
        "run: DeepSpeed drops it and takes its default; accelerate: utils/dataclasses.py:fill_match, run: ValueError",
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
    """The Trainer makes Accelerate's plugin too. DeepSpeed itself takes a config without, but for a batch that is
    "auto", and its autotuner puts one in.
    """
    version = subject.setting.transformers
    is_older = subject.setting.reader == TRAINER and version is not None and number(version) < number(PLUGIN_SINCE)
    if subject.stated("autotuning.enabled") is True or is_older:
        return
    if subject.setting.reader in (ACCELERATE, TRAINER) and ZERO not in subject.config:
        no_other = subject.setting.reader_is_known or any(subject.config.get(name) == AUTO for name in BATCH)
        severity = "" if no_other or subject.setting.reader == ACCELERATE else WARNING
        yield Hit("ZP801", (), "no zero_optimization: Accelerate stops, and with it the Trainer",
                  '"zero_optimization": {"stage": 2}', severity)  # fmt: skip


def lightning(subject: Subject) -> Iterator[Hit]:
    name = "gradient_accumulation_steps"
    if subject.setting.reader == LIGHTNING and name in subject.config:
        yield Hit("ZP619", (name,), f"{name} here: Lightning stops, it takes its Trainer's accumulate_grad_batches",
                  "delete it")  # fmt: skip


def unfilled_autos(subject: Subject) -> Iterator[Hit]:
    """Accelerate stops at every "auto" that it has no value for, under the Trainer too. DeepSpeed itself drops those of
    its strict sections; those of bf16 and fp16 have a rule of their own there.
    """
    table, fills = subject.table, subject.setting.fills
    for path, member in subject.document.members.items():
        known = table.keys.get(".".join(path))
        if member.node.scalar != AUTO or (not fills and path[0] != ZERO) or _is_meant(subject, ".".join(path), known):
            continue
        if known is not None and not known.auto and known.section not in table.strict and stops(known, AUTO):
            continue  # DeepSpeed's own rule says it
        does = "DeepSpeed drops it and takes its default"
        if fills:
            does = "Accelerate stops" + (", and with it the Trainer" if subject.setting.reader == TRAINER else "")
        value = known.default if known is not None else None
        write = f'"{path[-1]}": {said(value)}' if isinstance(value, int) else "delete it"
        if known is None and (meant := _meant(subject, path)):
            write = f'"{meant}": "auto"'
        if known is not None and known.path in OF_THE_TRAINER:
            yield Hit("ZP804", path, '"auto" here: the Trainer fills it, Accelerate alone stops', write)
            continue
        yield Hit("ZP804", path, f'nothing fills "auto" here: {does}', write, ERROR if fills else "")


def _meant(subject: Subject, path: tuple[str, ...]) -> str:
    """The key that a slip was to be, where the Trainer fills that; "" for none."""
    entry = next((one for one in subject.entries if one.path == path), None)
    near = likely(entry, subject.table) if entry is not None else ""
    known = subject.table.keys.get(f"{entry.section}.{near}".strip(".")) if entry is not None and near else None
    return near if known is not None and known.auto and subject.stated(known.path) is None else ""


def _is_meant(subject: Subject, path: str, known: Key | None) -> bool:
    """Whether who reads the file has something to put there, or DeepSpeed itself means something by it."""
    reader = subject.setting.reader
    if not subject.setting.fills:
        return known is not None and known.default == AUTO
    if reader == ACCELERATE and path == "train_batch_size":
        return "train_micro_batch_size_per_gpu" in subject.config
    alone = reader == ACCELERATE and subject.setting.arguments is None
    is_filled = known is not None and bool(known.auto) and not (alone and path in OF_THE_TRAINER)
    return is_filled or path in ACCELERATE_FILLS


def idle_checkpointing(subject: Subject) -> Iterator[Hit]:
    if subject.setting.reader == TRAINER and subject.config.get("activation_checkpointing"):
        yield Hit("ZP808", ("activation_checkpointing",), "models of transformers do not read it",
                  "gradient_checkpointing in TrainingArguments")  # fmt: skip


CHECKS = (accelerate, lightning, unfilled_autos, idle_checkpointing)
