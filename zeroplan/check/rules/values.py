"""1xx and others: values of another kind, out of range or out of choice, judged by the table of keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zeroplan.check.edit import valued
from zeroplan.check.finding import ERROR, WARNING, Hit, said
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules import answers
from zeroplan.check.rules.names import FP16, OK, STAGE_2, STAGE_3
from zeroplan.check.setting import TRAINER
from zeroplan.check.subject import Entry, Subject
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.values import ANY_CASE, AUTO, DTYPES, FALSE, TRUE, expected, fault, stops
from zeroplan.deepspeed.values import example as instead

BF16 = '{"train_batch_size": 8, "bf16": {"enabled": true}%s}'
MODELS = "the pydantic models of runtime/zero/config.py, precision_config.py and others"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP109", ERROR, "A text, null or list where DeepSpeed computes with a number", "run: TypeError",
        example(BF16 % ', "gradient_clipping": "1.0"'), example(BF16 % ', "gradient_clipping": 1.0'),
    ),
    Rule(
        "ZP110", WARNING, "true or false in quotes", "run: pydantic takes it for the switch",
        example('{"train_batch_size": 8, "bf16": {"enabled": "true"}}'), example(OK),
    ),
    Rule(
        "ZP111", ERROR, "A text that is no whole number", MODELS,
        example(STAGE_2 % ', "reduce_bucket_size": "5e8"'), example(STAGE_2 % ', "reduce_bucket_size": 5e8'),
    ),
    Rule(
        "ZP113", ERROR, "A fraction where a whole number belongs", MODELS,
        example(STAGE_3 % ', "stage3_prefetch_bucket_size": 15099494.4'),
        example(STAGE_3 % ', "stage3_prefetch_bucket_size": 15099494'), ISSUE + "6525", since="0.15.0",
    ),
    Rule(
        "ZP114", ERROR, "zero_optimization or its stage as a list, as for the autotuner", "runtime/zero/config.py",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": [1, 2]}}'),
        example(STAGE_2 % ""),
    ),
    Rule(
        "ZP116", ERROR, "A value of another kind", MODELS,
        example(STAGE_2 % ', "overlap_comm": 2'), example(STAGE_2 % ', "overlap_comm": true'),
    ),
    Rule(
        "ZP117", ERROR, "A number out of its range", MODELS,
        example(STAGE_3 % ', "sub_group_size": -1'), example(STAGE_3 % ', "sub_group_size": 1000000000'),
    ),
    Rule(
        "ZP118", ERROR, "A word that is none of those that DeepSpeed knows", "runtime/config.py",
        example(BF16 % ', "checkpoint": {"tag_validation": "sometimes"}'),
        example(BF16 % ', "checkpoint": {"tag_validation": "Fail"}'),
    ),
    Rule(
        "ZP119", ERROR, "A section that is no object", "runtime/config.py",
        example(BF16 % ', "optimizer": "AdamW"'), example(BF16 % ', "optimizer": {"type": "AdamW"}'),
    ),
    Rule(
        "ZP304", ERROR, "fp16.min_loss_scale is no whole number", "runtime/precision_config.py:155",
        example(FP16 % ', "min_loss_scale": 0.5'), example(FP16 % ', "min_loss_scale": 1'), since="0.17.1",
    ),
    Rule(
        "ZP317", ERROR, "communication_data_type in another spelling", "runtime/config.py:get_communication_data_type",
        example(BF16 % ', "communication_data_type": "bfloat16"'),
        example(BF16 % ', "communication_data_type": "BF16"'),
    ),
    Rule(
        "ZP401", ERROR, "A stage of ZeRO that there is not", "runtime/zero/config.py:ZeroStageEnum",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 4}}'),
        example(STAGE_2 % ""),
    ),
    Rule(
        "ZP404", ERROR, "reduce_bucket_size 0", "runtime/zero/config.py:113",
        example(STAGE_2 % ', "reduce_bucket_size": 0'),
        example(STAGE_2 % ', "reduce_bucket_size": 500000000'), since="0.19.6",
    ),
    Rule(
        "ZP503", ERROR, "A device for offloading that there is not", "runtime/zero/offload_config.py:OffloadDeviceEnum",
        example(STAGE_2 % ', "offload_optimizer": {"device": "CPU"}'),
        example(STAGE_2 % ', "offload_optimizer": {"device": "cpu"}'),
    ),
)  # fmt: skip
DTYPE_KEYS = ("data_types.grad_accum_dtype", "data_types.param_dtype", "data_types.buffer_dtype")
BY_PATH = {
    **dict.fromkeys(("communication_data_type", "seq_parallel_communication_data_type", "seq_parallel_comm_data_type"),
                    "ZP317"), "fp16.loss_scale": "ZP306",
    "fp16.min_loss_scale": "ZP304", "zero_optimization.reduce_bucket_size": "ZP404",
    **dict.fromkeys(DTYPE_KEYS, "ZP314"), "zero_optimization.offload_param.device": "ZP503",
    "zero_optimization.offload_optimizer.device": "ZP503",
}  # fmt: skip
"""Keys whose wrong values have a rule of their own."""
BY_FAULT = {"fraction": "ZP113", "text": "ZP111", "range": "ZP117", "choice": "ZP118", "kind": "ZP116"}
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "sequence_parallel_size")
"""They have rules of their own (rules/batch.py)."""
COMPARED = ("fp16.enabled", "bf16.enabled")
"""Switches that the Trainer holds against TrainingArguments (transformers integrations/deepspeed.py:fill_match)."""
WORDS = (*ANY_CASE, "log_level", "seq_parallel_comm_data_type")
"""Hand-read texts that DeepSpeed compares with its list."""


def strict_values(subject: Subject) -> Iterator[Hit]:
    """What the pydantic models refuse."""
    for entry in subject.entries:
        known = entry.known
        if known is None or entry.section not in subject.table.strict:
            continue
        if wrong := fault(known, entry.value, subject.table):
            yield _hit(subject, _rule(known, entry.value, wrong), entry, known)
        elif known.kind.startswith("boolean") and isinstance(entry.value, str) and entry.value.lower() in TRUE | FALSE:
            stops = subject.setting.reader == TRAINER and known.path in COMPARED
            others = "the Trainer compares it with a switch and stops" if stops else "others do not"
            yield Hit("ZP110", entry.path, f"{said(entry.value)} in quotes: DeepSpeed takes it for "
                      f"{_word(entry.value)}, {others}", f'"{entry.name}": {_word(entry.value)}',
                      ERROR if stops else WARNING,
                      edits=valued(subject.document, entry.path, _word(entry.value)))  # fmt: skip


def _word(text: str) -> str:
    return "true" if text.lower() in TRUE else "false"


def _rule(known: Key, value: Any, wrong: str) -> str:
    if known.path == "zero_optimization.stage":
        return "ZP114" if isinstance(value, list) else "ZP401"
    if known.path == "zero_optimization.reduce_bucket_size" and (wrong != "range" or value):
        return BY_FAULT[wrong]
    if known.kind.startswith("object"):
        return "ZP119"
    return BY_PATH.get(known.path) or BY_FAULT[wrong]


def _hit(subject: Subject, rule: str, entry: Entry, known: Key) -> Hit:
    wants = expected(known) if known.settable else "nothing that JSON can hold"
    if known.kind.startswith("object"):
        wants, write = "an object in {}", f'"{entry.name}": {{}}'
    else:
        new = "1" if rule == "ZP304" else instead(known, entry.value)  # 0 is no floor of a dynamic scale (ZP305)
        if rule == "ZP114":
            new = next((str(stage) for stage in entry.value if stage in (0, 1, 2, 3)), new)
        write = f'"{entry.name}": {new}' if known.settable else "delete it"
    return Hit(rule, entry.path, f"{said(entry.value)} here: DeepSpeed stops, it takes {wants}", write,
               edits=answers.value(subject, entry.path, known, entry.value))


def hand_read_values(subject: Subject) -> Iterator[Hit]:
    """What stops DeepSpeed in keys that no model validates."""
    for entry in subject.entries:
        known = entry.known
        if known is None or entry.section in subject.table.strict or known.path in BATCH:
            continue
        filled = entry.value == AUTO and bool(known.auto) and subject.setting.fills
        filled = filled or (known.path == "steps_per_print" and subject.setting.fills)  # Accelerate writes infinity
        nothing = entry.name == "bfloat16" and entry.value is None  # null in bf16 is no section
        if not filled and _is_read(subject, known) and (nothing or _stops(known, entry.value)):
            yield _hit(subject, _hand_rule(known, entry.value), entry, known)


def _is_read(subject: Subject, known: Key) -> bool:
    """Parameters are looked at only where a type is named."""
    owner, _, rest = known.path.partition(".")
    section = subject.config.get(owner)
    if owner not in ("optimizer", "scheduler") or not rest.startswith("params"):
        return True
    return isinstance(section, dict) and section.get("type") is not None


def _stops(known: Key, value: Any) -> bool:
    if stops(known, value):
        return True
    if known.path in DTYPE_KEYS:
        return value is not None and (not isinstance(value, str) or value not in DTYPES)
    if known.path == "steps_per_print":
        return value is not None and value == 0
    if known.path == "torch_autocast.lower_precision_safe_modules":
        return isinstance(value, list) and not all(isinstance(item, str) for item in value)
    if known.path in WORDS and value is not None:
        fold = ANY_CASE.get(known.path, str)
        return not isinstance(value, str) or fold(value) not in known.choices
    return known.path == "gradient_allreduce_op" and value is None


def _hand_rule(known: Key, value: Any) -> str:
    if value == AUTO and known.auto:
        return "ZP207"
    if known.path == "zero_optimization" and isinstance(value, list):
        return "ZP114"
    if known.path in (*DTYPE_KEYS, *WORDS):
        return BY_PATH.get(known.path, "ZP118")
    if "object" in known.kind.split("|"):
        return "ZP119"
    if known.kind.split("|")[0] in ("integer", "number"):
        return "ZP117" if isinstance(value, int) else "ZP109"
    return "ZP116"


def sections_in_old_form(subject: Subject) -> Iterator[Hit]:
    """zero_optimization: true takes allgather_size, which the model of ZeRO then validates."""
    config = subject.config
    if config.get("zero_optimization") is not True or "allgather_size" not in config:
        return
    keys, value = subject.table.keys, config["allgather_size"]
    target = keys["zero_optimization.allgather_bucket_size"]
    if wrong := fault(target, value, subject.table):
        entry = Entry(("allgather_size",), "", keys["allgather_size"], value)
        yield _hit(subject, BY_FAULT[wrong], entry, target)


CHECKS = (strict_values, hand_read_values, sections_in_old_form)
