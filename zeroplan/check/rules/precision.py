"""3xx: the dtype of training."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.accelerate_config import HALVES
from zeroplan.check.arguments import SWITCHES
from zeroplan.check.edit import renamed
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.names import OK
from zeroplan.check.setting import ACCELERATE, DEEPSPEED, LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.precision import is_open
from zeroplan.deepspeed.values import AUTO

SOURCE = "runtime/precision_config.py"
AUTO_BF16 = '{"train_batch_size": 8, "bf16": {"enabled": "auto"}}'
FP32_SUM = ('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": %d}, '
            '"data_types": {"grad_accum_dtype": "fp32"}}')  # fmt: skip
POWER = 24
ADAM_IN_FP16 = '{"train_batch_size": 8, "fp16": {"enabled": true}, "optimizer": {"type": "AdamW"}%s}'

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP301", ERROR, "fp16 and bf16 both enabled", "runtime/config.py:_initialize_params",
        example('{"train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'), example(OK),
    ),
    Rule(
        "ZP307", WARNING, "bfloat16, the old name of bf16", f"{SOURCE}:get_bfloat16_config",
        example('{"train_batch_size": 8, "bfloat16": {"enabled": true}}'), example(OK),
    ),
    Rule(
        "ZP308", WARNING, '"auto" for the precision, where it means off', "run: the model stays in fp32",
        example(AUTO_BF16, reader=DEEPSPEED),
        example(AUTO_BF16.replace("8", '"auto", "zero_optimization": {"stage": 2}'), reader="hf"),
    ),
    Rule(
        "ZP309", WARNING, "Neither fp16 nor bf16", "run: the model stays in fp32",
        example('{"train_batch_size": 8}'), example(OK),
    ),
    Rule(
        "ZP316", ADVICE, "Stage 1 in bf16 with gradients summed in fp32", "run: BF16_Optimizer",
        example(FP32_SUM % 1), example(FP32_SUM % 2),
    ),
    Rule(
        "ZP325", WARNING, "fp16.auto_cast without fp16", "run: mat1 and mat2 must have the same dtype",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "fp16": {"enabled": false, "auto_cast": true}}'),
        example('{"train_batch_size": 8, "fp16": {"enabled": true, "auto_cast": true}}'), since="0.17.1",
    ),
    Rule(
        "ZP326", WARNING, "fp16 without ZeRO, in releases whose step ends before the update",
        "runtime/fp16/fused_optimizer.py:step, read: it returns whether or not there was an overflow",
        example(ADAM_IN_FP16 % "", version="0.18.0"),
        example(ADAM_IN_FP16 % ', "zero_optimization": {"stage": 1}', version="0.18.0"),
        since="0.17.6", until="0.18.2",
    ),
    Rule(
        "ZP321", ADVICE, "A loss scale that begins very high", "24 public files begin at 2^32, 91 at 2^16",
        example('{"train_batch_size": 8, "fp16": {"enabled": true, "initial_scale_power": 32}}'),
        example('{"train_batch_size": 8, "fp16": {"enabled": true, "initial_scale_power": 16}}'),
    ),
)  # fmt: skip


def both(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts("fp16.enabled") is True and facts("bf16.enabled") is True:
        yield Hit("ZP301", subject.spelled("bf16.enabled"), "fp16 and bf16 are both enabled: DeepSpeed refuses that",
                  '"enabled": false in one of them')  # fmt: skip


def old_name(subject: Subject) -> Iterator[Hit]:
    if "bfloat16" in subject.config:
        beside = subject.config.get("bf16") is not None
        does = "ignored without a word beside bf16" if beside else "the old name of bf16"
        yield Hit("ZP307", ("bfloat16",), f"bfloat16 is {does}", "delete it" if beside else '"bf16": ...',
                  edits=() if beside or subject.setting.fills else renamed(subject.document, ("bfloat16",), "bf16"))


def auto_is_off(subject: Subject) -> Iterator[Hit]:
    if subject.setting.reader not in (DEEPSPEED, LIGHTNING):
        return
    for section in ("fp16", "bf16", "bfloat16"):
        part = subject.config.get(section)
        if section == "bfloat16" and "bf16" in subject.config:
            continue
        if isinstance(part, dict) and part.get("enabled") == AUTO:
            by_hand = section.replace("float", "f") not in subject.table.strict
            does = f"takes any text for true, and {section} is on" if by_hand else f"drops it, and {section} stays off"
            yield Hit("ZP308", (section, "enabled"), f'"auto" in {section}: DeepSpeed {does}', '"enabled": true')


def fp32(subject: Subject) -> Iterator[Hit]:
    """Accelerate and Lightning turn one on that is not stated, and so does the Trainer (transformers 5.23
    training_args.py:1720, accelerate's set_mixed_precision); a bf16 that is off was meant so.
    """
    facts, arguments = subject.facts, subject.setting.arguments
    of_trainer = arguments if subject.setting.reader == TRAINER else None
    if of_trainer is not None and any(of_trainer(half) is not False for half in SWITCHES):
        return
    if subject.setting.reader in (ACCELERATE, LIGHTNING) or subject.stated("bf16.enabled") is False:
        return
    precision = subject.setting.precision
    if subject.setting.reader == TRAINER and arguments is None and is_open(subject.config, precision or "bf16"):
        if precision is None:
            has_fp16 = "fp16" in subject.config
            what = "no bf16" if has_fp16 else "neither fp16 nor bf16"
            adds = "it where TrainingArguments do" if has_fp16 else "the one that TrainingArguments turn on"
            yield Hit("ZP309", (), f"{what}: the Trainer adds {adds}, and trains in fp32 where none is on",
                      '"bf16": {"enabled": "auto"}', ADVICE)  # fmt: skip
        return
    autos = [part for part in ("fp16", "bf16") if subject.stated(f"{part}.enabled") == AUTO]
    launched = HALVES.get(subject.setting.mixed_precision or "")
    if launched in autos and arguments is not None and not subject.setting.by_launcher:
        yield Hit("ZP309", (launched, "enabled"), f'mixed_precision {subject.setting.mixed_precision} of accelerate '
                  'launch does not reach a config that the script is given: "auto" becomes what TrainingArguments say, '
                  "false, and all is trained in fp32", f"--{launched} for the script", WARNING)  # fmt: skip
    if facts.dtype == "fp32" and not autos and facts.stated("torch_autocast.enabled") is not True:
        path = subject.spelled("bf16.enabled") or subject.spelled("fp16.enabled")
        yield Hit("ZP309", path, "neither fp16 nor bf16 is enabled: DeepSpeed trains in fp32, with twice the bytes",
                  '"bf16": {"enabled": true}')  # fmt: skip


def another_optimizer(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.stage != 1 or facts("bf16.enabled") is not True or facts.offloads_optimizer:
        return
    if facts.stated_dtype("data_types.grad_accum_dtype") == "fp32":
        yield Hit("ZP316", subject.spelled("data_types.grad_accum_dtype"), "stage 1 in bf16 with fp32 accumulation is "
                  "another optimizer (BF16_Optimizer): it holds every gradient in fp32", '"stage": 2')  # fmt: skip


def high_scale(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts("fp16.enabled") is not True or facts("fp16.loss_scale") != 0:
        return
    power = facts("fp16.initial_scale_power")
    if power > POWER:
        yield Hit("ZP321", subject.spelled("fp16.initial_scale_power"),
                  f"the loss scale begins at 2^{power}: each halving "
                  "skips a step", '"initial_scale_power": 16')  # fmt: skip


def never_updates(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.stage == 0 and facts("fp16.enabled") is True and facts.optimizer_class == "FusedAdam":
        yield Hit("ZP326", subject.spelled("fp16.enabled"), "in fp16 without ZeRO the step of DeepSpeed "
                  f"{subject.setting.version} returns before it updates a weight",
                  '"zero_optimization": {"stage": 1}, or deepspeed>=0.18.2')  # fmt: skip


def casts_inputs(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts("fp16.auto_cast") and facts("fp16.enabled") is not True:
        yield Hit("ZP325", subject.spelled("fp16.auto_cast"), "inputs that are no whole numbers become fp16 although "
                  "fp16 is not enabled: a layer in another dtype stops", '"auto_cast": false')  # fmt: skip


CHECKS = (never_updates, casts_inputs, both, old_name, auto_is_off, fp32, another_optimizer, high_scale)
