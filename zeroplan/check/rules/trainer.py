"""What TrainingArguments and the config say of each other: transformers 5.23 integrations/deepspeed.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from zeroplan.catalog.trainers.tools import TRAINER as TOOL
from zeroplan.check.accelerate_config import HALVES
from zeroplan.check.arguments import SWITCHES, Arguments
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit, named, said
from zeroplan.check.finding import number as figure
from zeroplan.check.rule import ISSUE, Rule, arguing, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.values import AUTO
from zeroplan.releases import number

LINK = "https://huggingface.co/docs/transformers/deepspeed"
FILL = "transformers: integrations/deepspeed.py:fill_match"
FLOAT = re.compile(r"[-+]?(?:[0-9]+[eE][-+]?[0-9]+|[0-9]+\.[0-9]*[eE][0-9]+)")
"""A number to JSON and people, a text to YAML 1.1, which wants a point and a sign."""
INFINITE = float("inf")
BATCH = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
}  # fmt: skip
PAIRS = {
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "learning_rate",
}
"""Keys that the Trainer compares with an argument of its own."""
AS_DEEPSPEEDS_OWN = ("adam", "adamw", "adamw_torch", "adamw_torch_fused", "lion", "lion_32bit")
"""What becomes DeepSpeed's optimizer for the CPU, or may be it."""
AUTOS = ('{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": %s, "bf16": {"enabled": "auto"}, '
         '"zero_optimization": {"stage": 2%s}%s}')  # fmt: skip
CPU = ', "offload_optimizer": {"device": "cpu", "pin_memory": true}'
ONE_SEQUENCE = '{"bf16": true, "per_device_train_batch_size": 1}'
ACCUMULATES = '{"bf16": true, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}'
WARMUP = ', "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}'
LR = ', "optimizer": {"type": "AdamW", "params": {"lr": %s}}'

BEST = '{"save_only_model": true, "load_best_model_at_end": %s, "eval_strategy": "steps", "bf16": true}'
RULES: tuple[Rule, ...] = (
    Rule(
        "ZP112", WARNING, "A number that YAML reads as a text",
        "run: yaml.safe_load('a: 1e-4') gives '1e-4', and torch.optim.AdamW with it TypeError",
        arguing(AUTOS % ('"auto"', "", ""), "{learning_rate: 1e-4, bf16: true}", "train.yaml"),
        arguing(AUTOS % ('"auto"', "", ""), "{learning_rate: 1.0e-4, bf16: true}", "train.yaml"), LINK,
    ),
    Rule(
        "ZP205", ERROR, "A batch size that is not that of TrainingArguments", f"{FILL}, run: ValueError",
        arguing(AUTOS % ("4", "", ""), '{"per_device_train_batch_size": 2, "bf16": true}'),
        arguing(AUTOS % ("4", "", ""), '{"per_device_train_batch_size": 4, "bf16": true}'), LINK,
    ),
    Rule(
        "ZP516", ERROR, "An offloaded optimizer that DeepSpeed did not make",
        "runtime/engine.py:_configure_optimizer, run: ZeRORuntimeException; "
        "accelerate: utils/deepspeed.py:map_pytorch_optim_to_deepspeed",
        example(STAGE_2 % CPU, optimizer="adafactor"),
        example((STAGE_2 % CPU)[:-1] + ', "zero_force_ds_cpu_optimizer": false, "zero_allow_untested_optimizer": true}',
                optimizer="adafactor"),
    ),
    Rule(
        "ZP620", ERROR, "A value that is not that of TrainingArguments", f"{FILL}, run: ValueError",
        arguing(AUTOS % ('"auto"', "", LR % "0.0001"), '{"learning_rate": 0.00002, "bf16": true}'),
        arguing(AUTOS % ('"auto"', "", LR % '"auto"'), '{"learning_rate": 0.00002, "bf16": true}'), LINK,
    ),
    Rule(
        "ZP803", ERROR, "A precision that is not Accelerate's", "accelerate: set_mixed_precision, run: ValueError",
        example('{"train_batch_size": 8, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
                reader=ACCELERATE, precision="bf16"),
        example(STAGE_2 % "", reader=ACCELERATE, precision="bf16"), LINK,
    ),
    Rule(
        "ZP618", ERROR, "An optimizer in the config and one in the code",
        "accelerate: accelerator.py:_prepare_deepspeed, run: ValueError",
        example((STAGE_2 % "")[:-1] + LR % "0.0001" + "}", reader=ACCELERATE, client_optimizer="yes"),
        example(STAGE_2 % "", reader=ACCELERATE, client_optimizer="yes"), LINK,
    ),
    Rule(
        "ZP807", ERROR, "Evaluation alone below stage 3",
        "transformers: integrations/deepspeed.py:deepspeed_init, run: ValueError",
        arguing(AUTOS % ('"auto"', "", ""), '{"do_train": false, "do_eval": true, "bf16": true}'),
        arguing(AUTOS % ('"auto"', "", ""), '{"do_train": true, "do_eval": true, "bf16": true}'), LINK,
    ),
    Rule(
        "ZP809", ADVICE, "steps_per_print, which Accelerate sets", "accelerate: DeepSpeedPlugin, run: Infinity",
        example((STAGE_2 % "")[:-1] + ', "steps_per_print": 10}', reader=ACCELERATE),
        example(STAGE_2 % "", reader=ACCELERATE), LINK,
    ),
    Rule(
        "ZP814", ERROR, "A number that an older Trainer or Accelerate fills in and DeepSpeed refuses",
        "transformers: integrations/deepspeed.py:trainer_config_finalize, before 4.45 and before 5.18; "
        "accelerate: accelerator.py:_prepare_deepspeed, before 0.31 and before 1.15",
        arguing(AUTOS % ('"auto"', "", WARMUP), ONE_SEQUENCE, transformers="5.17.0"),
        arguing(AUTOS % ('"auto"', "", WARMUP), ONE_SEQUENCE, transformers="5.24.0"), ISSUE + "6525",
    ),
    Rule(
        "ZP810", ADVICE, "The best model loaded at the end, at stage 3", "reported: memory runs out where it is loaded",
        arguing(STAGE_3 % "", '{"load_best_model_at_end": true, "eval_strategy": "steps", "bf16": true}'),
        arguing(STAGE_3 % "", '{"bf16": true, "per_device_train_batch_size": 1}'), ISSUE + "3938",
    ),
    Rule(
        "ZP817", ERROR, "What the Trainer refuses beside DeepSpeed", "transformers: trainer.py, run: ValueError",
        arguing(AUTOS % ('"auto"', "", ""), BEST % "true"),
        arguing(AUTOS % ('"auto"', "", ""), '{"save_only_model": true, "bf16": true}'), LINK,
    ),
    Rule(
        "ZP819", WARNING, "Accumulation in an older Trainer, which DeepSpeed refuses since 0.16",
        "runtime/engine.py:no_sync, run with accelerate 1.2.1: AssertionError",
        arguing(AUTOS % ('"auto"', "", ', "gradient_accumulation_steps": "auto"'), ACCUMULATES, transformers="4.46.1"),
        arguing(AUTOS % ('"auto"', "", ', "gradient_accumulation_steps": "auto"'), ACCUMULATES, transformers="4.47.1"),
        ISSUE + "6793",
    ),
)  # fmt: skip


def texts_for_numbers(arguments: Arguments) -> Iterator[Hit]:
    """Texts in place of numbers, in YAML alone: in JSON a text is in quotes."""
    if not arguments.document.name.endswith((".yaml", ".yml")) or arguments.tool != TOOL:
        return  # OmegaConf of LLaMA-Factory, argparse of TRL and pydantic of axolotl make numbers of them
    for path, member in arguments.document.walk():
        value, node = member.node.scalar, member.node
        plain = arguments.document.text[node.start : node.start + 1] not in "\"'"
        if isinstance(value, str) and plain and FLOAT.fullmatch(value):
            mantissa, _, power = value.lower().partition("e")
            point = mantissa if "." in mantissa else f"{mantissa}.0"
            sign = power if power[:1] in "+-" else f"+{power}"
            yield Hit("ZP112", path, f"{named(value)} is a text to PyYAML: where the Trainer computes with it it stops",
                      f"{named(member.name)}: {named(f'{point}e{sign}')}")  # fmt: skip


def batch_sizes(subject: Subject) -> Iterator[Hit]:
    arguments = subject.setting.trainer_arguments
    if arguments is None:
        return
    for key, name in BATCH.items():
        value = subject.stated(key)
        if value not in (None, AUTO) and arguments(name) not in (None, value):
            yield _mismatch("ZP205", subject, key, arguments.spelled(name), arguments(name), arguments)
    steps, accumulates = "gradient_accumulation_steps", arguments("gradient_accumulation_steps")
    if steps not in subject.config and isinstance(accumulates, int) and accumulates > 1:
        stops = {"train_batch_size", "train_micro_batch_size_per_gpu"} <= subject.config.keys()
        yield Hit("ZP205", (), f"no {steps}: Accelerate writes 1, TrainingArguments say {accumulates} "
                  f"({arguments.place(steps)}): {'DeepSpeed stops' if stops else 'gradients are not accumulated'}",
                  f'"{steps}": "auto"', "" if stops else WARNING)  # fmt: skip
    total, product = subject.stated("train_batch_size"), 1
    for name in BATCH.values():
        product *= arguments(name) if isinstance(arguments(name), int | float) else 0
    gpus = subject.setting.gpus
    if isinstance(total, int | float) and product and (total != product * gpus if gpus else total % product):
        ranks = f"{gpus} GPUs" if gpus else "the GPUs"
        yield Hit("ZP205", ("train_batch_size",), f"train_batch_size {said(total)}, TrainingArguments make it "
                  f"{figure(product)} · {ranks}: the Trainer stops", '"train_batch_size": "auto"')  # fmt: skip


def values(subject: Subject) -> Iterator[Hit]:
    arguments = subject.setting.trainer_arguments
    if arguments is None:
        return
    pairs = {key: (name, arguments(name)) for key, name in PAIRS.items()}
    betas = [arguments("adam_beta1"), arguments("adam_beta2")]
    pairs["optimizer.params.betas"] = ("adam_beta1", None if None in betas else betas)
    for half in ("fp16", "bf16") if not arguments.of_gaudi else ():
        if arguments(half) is not None:
            pairs[f"{half}.enabled"] = (half, bool(arguments(half) or arguments(f"{half}_full_eval")))
    warmup, most = arguments("warmup_steps"), arguments("max_steps")
    by_ratio = arguments.stated("warmup_ratio") is not None  # of all steps, whose number is not known here
    if not by_ratio and isinstance(warmup, int | float) and (1 <= warmup < INFINITE or not warmup):
        least = 0 if _fills_no_warmup(subject) else 1
        pairs["scheduler.params.warmup_num_steps"] = ("warmup_steps", max(least, int(warmup)))
    if isinstance(most, int | float) and 0 < most < INFINITE:
        pairs["scheduler.params.total_num_steps"] = ("max_steps", int(most))
    for key, (name, value) in pairs.items():
        stated = subject.written(key)
        if stated not in (None, AUTO) and value is not None and stated != value:
            yield _mismatch("ZP620", subject, key, name, value, arguments)


WARMS_UP_SINCE = {TRAINER: "5.18", ACCELERATE: "1.15"}
"""The release from which "auto" is a warm-up of one step where none is stated, by who reads the config."""
WHOLE_BUCKET_SINCE = {TRAINER: "4.45", ACCELERATE: "0.31"}
"""The release from which "auto" is a prefetch bucket of whole elements."""


def _fills_no_warmup(subject: Subject) -> bool:
    """Whether a warm-up of 0 steps stays 0: from 5.18 on the Trainer makes 1 of it (trainer_config_finalize)."""
    version = subject.setting.transformers
    return version is not None and number(version) < number(WARMS_UP_SINCE[TRAINER])


def _mismatch(rule: str, subject: Subject, key: str, name: str, value: Any, arguments: Arguments) -> Hit:
    last, says = key.rpartition(".")[2], f"says {said(value)} ({arguments.place(name)})"
    if name == "warmup_steps" and value != arguments(name):
        says = f"says {said(arguments(name))} ({arguments.place(name)}), of which the Trainer makes {said(value)}"
    return Hit(rule, tuple(key.split(".")), f"{said(subject.stated(key))} for {last}, {name} {says}: the Trainer stops",
               f'"{last}": "auto"')  # fmt: skip


def foreign_optimizer(subject: Subject) -> Iterator[Hit]:
    """Accelerate puts DeepSpeed's CPU Adam in the place of any optimizer, Adagrad's of Adagrad."""
    facts, setting = subject.facts, subject.setting
    if not facts.offloads_optimizer or facts.stated("optimizer.type") is not None:
        return
    if subject.config.get("zero_force_ds_cpu_optimizer", True) is False:
        return
    arguments, optimizer = setting.arguments, setting.optimizer
    if setting.reader == TRAINER and arguments is not None and optimizer is None:
        optimizer = None if (stated := arguments("optim")) is None else str(stated)
    raw = setting.reader not in (TRAINER, ACCELERATE)
    own = setting.reader == LIGHTNING and setting.client_optimizer is None  # configure_optimizers of its module
    if optimizer is None and (setting.client_optimizer or own) and raw:
        yield Hit("ZP516", subject.spelled("zero_optimization.offload_optimizer"), "the script's optimizer beside an "
                  "offloaded one: DeepSpeed refuses all but its own for the CPU (--optimizer says which it is)",
                  "deepspeed.ops.adam.DeepSpeedCPUAdam in the script, or "
                  '"zero_force_ds_cpu_optimizer": false', ADVICE if own else WARNING)  # fmt: skip
    old_lion = optimizer is not None and optimizer.startswith("lion") and subject.table.before("0.17.6")
    if optimizer is None or (optimizer in AS_DEEPSPEEDS_OWN and not old_lion):
        return
    path, write = subject.spelled("zero_optimization.offload_optimizer"), '"zero_force_ds_cpu_optimizer": false'
    wraps = setting.reader in (TRAINER, ACCELERATE)
    if wraps and not optimizer.startswith("adagrad") and not old_lion:
        yield Hit("ZP516", path, f"{named(optimizer)} beside an offloaded optimizer: Accelerate puts DeepSpeedCPUAdam "
                  "in its place without a word", write, WARNING)  # fmt: skip
    else:
        yield Hit("ZP516", path, f"{named(optimizer)} that the script builds, beside an offloaded optimizer: DeepSpeed "
                  "refuses all but its own for the CPU", write)  # fmt: skip


def two_optimizers(subject: Subject) -> Iterator[Hit]:
    if subject.setting.reader == ACCELERATE and subject.setting.client_optimizer and "optimizer" in subject.config:
        yield Hit("ZP618", ("optimizer",), "an optimizer here and one in the script: Accelerate stops",
                  "accelerate.utils.DummyOptim(parameters, lr=...) in the script, or delete it")  # fmt: skip


def mixed_precision(subject: Subject) -> Iterator[Hit]:
    setting = subject.setting
    stated = setting.precision if setting.reader == ACCELERATE else None
    launched = setting.mixed_precision if setting.by_launcher and setting.arguments is None else None
    if (half := HALVES.get(stated or launched or "")) is None:
        return
    other = "bf16" if half == "fp16" else "fp16"
    section = subject.config.get(other)
    if isinstance(section, dict) and str(section.get("enabled")).lower() == "true":
        does, severity = "Accelerate stops", ""
        if not stated:  # the script is not read: it may be the Trainer's, whose own arguments win
            does, severity = f"Accelerate stops, but where TrainingArguments turn {other} on", WARNING
        yield Hit("ZP803", (other, "enabled"), f"{other} here, mixed_precision {stated or launched} in the script or "
                  f"launcher: {does}", '"enabled": "auto"', severity)  # fmt: skip


def filled_by_the_launcher(subject: Subject) -> Iterator[Hit]:
    """Accelerate turns on what the launcher says before the Trainer compares it with its own arguments."""
    setting, arguments = subject.setting, subject.setting.trainer_arguments
    half = HALVES.get(setting.mixed_precision or "") if setting.by_launcher else None
    if arguments is None or half is None or any(
        arguments(name) is not False for name in (*SWITCHES, f"{half}_full_eval")
    ):
        return
    if half not in subject.config or subject.written(f"{half}.enabled") == AUTO:
        yield Hit("ZP620", (half, "enabled"), f"mixed_precision {setting.mixed_precision} of accelerate launch turns "
                  f"{half} on, {half} says false ({arguments.place(half)}): the Trainer stops",
                  f"--{half} for the script too")  # fmt: skip


def evaluates_alone(subject: Subject) -> Iterator[Hit]:
    arguments, facts = subject.setting.trainer_arguments, subject.facts
    if arguments is None or facts.stage == 3 or arguments.stated("do_train") is not False:
        return
    if arguments.stated("do_eval") or arguments.stated("do_predict"):
        yield Hit("ZP807", subject.spelled("zero_optimization.stage"), f"do_train is false and the stage {facts.stage}"
                  ": the Trainer stops, of ZeRO only stage 3 divides what evaluation needs", '"stage": 3')  # fmt: skip


def print_steps(subject: Subject) -> Iterator[Hit]:
    if subject.setting.fills and subject.config.get("steps_per_print") not in (None, float("inf")):
        yield Hit("ZP809", ("steps_per_print",), "Accelerate sets it to infinity: DeepSpeed prints nothing",
                  "delete it")  # fmt: skip


def older_fillings(subject: Subject) -> Iterator[Hit]:
    """A warm-up of no steps, which DeepSpeed refuses since 0.19.3: transformers writes it until 5.18, and Accelerate
    what its DummyScheduler says until 1.15. 0.9 of the hidden size squared as a fraction, which DeepSpeed refuses since
    0.15: transformers until 4.45, Accelerate until 0.31.
    """
    setting, arguments = subject.setting, subject.setting.trainer_arguments
    package, version = {
        TRAINER: ("transformers", setting.transformers), ACCELERATE: ("accelerate", setting.accelerate),
    }.get(setting.reader, ("", None))  # fmt: skip
    if version is None:
        return
    positive, whole = WARMS_UP_SINCE[setting.reader], WHOLE_BUCKET_SINCE[setting.reader]
    stops, filled = f"and DeepSpeed {setting.version} stops at that", f"{package} {version} fills in"
    warmup, prefetch = "scheduler.params.warmup_num_steps", "zero_optimization.stage3_prefetch_bucket_size"
    steps = subject.table.before("0.19.3") or (arguments is not None and arguments("warmup_steps"))
    if subject.written(warmup) == AUTO and number(version) < number(positive) and not steps:
        where, mend = "no warm-up is stated", "warmup_steps: 1 in TrainingArguments"
        if package == "accelerate":
            where, mend = "DummyScheduler is given no warm-up", "warmup_num_steps=1 for DummyScheduler"
        sure = arguments is not None and arguments.stated("warmup_ratio") is None and arguments("warmup_steps") == 0
        yield Hit("ZP814", tuple(warmup.split(".")), f"{filled} 0 where {where}, {stops}",
                  f"{mend}, or {package}>={positive}", "" if sure else WARNING)  # fmt: skip
    if subject.written(prefetch) == AUTO and number(version) < number(whole) and not subject.table.before("0.15.0"):
        model = setting.planned.model if setting.planned else None
        hidden = model.shape.hidden if model is not None and model.shape is not None else None
        if subject.facts.stage == 3 and (hidden is None or hidden * hidden * 9 % 10):
            size = f"{hidden * hidden * 9 / 10:,.1f}" if hidden else "0.9 of the hidden size squared, mostly a fraction"
            yield Hit("ZP814", tuple(prefetch.split(".")), f"{filled} {size}, {stops}",
                      f"{package}>={whole}, or a number", "" if hidden else WARNING)  # fmt: skip


def best_model(subject: Subject) -> Iterator[Hit]:
    arguments, facts = subject.setting.trainer_arguments, subject.facts
    if arguments is None or facts.stage != 3 or arguments("load_best_model_at_end") is not True:
        return
    yield Hit("ZP810", subject.spelled("zero_optimization.stage"), "load_best_model_at_end reads a checkpoint back "
              "beside all that training holds", "load_best_model_at_end: false; load it after training")  # fmt: skip


def refused_arguments(subject: Subject) -> Iterator[Hit]:
    """Pairs at which the Trainer stops; those before 4.45 are not known to."""
    arguments, version = subject.setting.trainer_arguments, subject.setting.transformers
    if arguments is None:
        return
    severity = WARNING if version is not None and number(version) < (4, 45) else ""
    if arguments("save_only_model") is True and arguments("load_best_model_at_end") is True:
        yield Hit("ZP817", (), f"save_only_model ({arguments.place('save_only_model')}) and load_best_model_at_end "
                  f"({arguments.place('load_best_model_at_end')}): under DeepSpeed the Trainer stops at both",
                  "save_only_model: false", severity)  # fmt: skip
    if arguments("auto_find_batch_size") is True and subject.facts.stage == 3:
        yield Hit("ZP817", subject.spelled("zero_optimization.stage"), "auto_find_batch_size "
                  f"({arguments.place('auto_find_batch_size')}) at stage 3: the Trainer stops",
                  "auto_find_batch_size: false", severity)  # fmt: skip


def resumes_without_optimizer(subject: Subject) -> Iterator[Hit]:
    arguments = subject.setting.trainer_arguments
    if arguments is None or arguments("save_only_model") is not True:
        return
    if (resumed := arguments.stated("resume_from_checkpoint")) not in (None, False, "false"):
        yield Hit("ZP817", (), f"resume_from_checkpoint {said(resumed)} and save_only_model "
                  f"({arguments.place('save_only_model')}): such a checkpoint has no part of DeepSpeed's, and the "
                  "Trainer stops", "save_only_model: false", WARNING)  # fmt: skip


def accumulates_in_accelerate(subject: Subject) -> Iterator[Hit]:
    """Its own accumulate() is no_sync too, until 1.9."""
    setting, steps = subject.setting, subject.stated("gradient_accumulation_steps")
    if setting.reader != ACCELERATE or setting.accelerate is None or number(setting.accelerate) >= (1, 9):
        return
    if isinstance(steps, int) and steps > 1 and subject.facts.stage > 1 and not subject.table.before("0.16.0"):
        stops = f"DeepSpeed {setting.version} stops at stage {subject.facts.stage}"
        yield Hit("ZP819", subject.spelled("zero_optimization.stage"),
                  f"accumulate() of accelerate {setting.accelerate} is no_sync: {stops}",
                  "accelerate>=1.9")  # fmt: skip


def accumulates_without_sync(subject: Subject) -> Iterator[Hit]:
    """Until 4.47.1 the Trainer accumulates in no_sync, which accelerate hands on to DeepSpeed until 1.9."""
    arguments, version = subject.setting.trainer_arguments, subject.setting.transformers
    if version is None or number(version) >= (4, 47, 1) or subject.table.before("0.16.0") or subject.facts.stage < 2:
        return
    steps = subject.stated("gradient_accumulation_steps")
    if steps == AUTO and arguments is not None:
        steps = arguments("gradient_accumulation_steps")
    if arguments is not None and isinstance(steps, int) and steps > 1:
        yield Hit("ZP819", subject.spelled("zero_optimization.stage"), f"transformers {version} accumulates {steps} "
                  f"micro-batches in no_sync: with accelerate before 1.9 DeepSpeed {subject.setting.version} stops "
                  f"at stage {subject.facts.stage}", "transformers>=4.47.1, or accelerate>=1.9")  # fmt: skip


ARGUMENT_CHECKS: tuple[Callable[[Arguments], Iterator[Hit]], ...] = (texts_for_numbers,)
CHECKS = (batch_sizes, values, foreign_optimizer, two_optimizers, mixed_precision, filled_by_the_launcher,
          evaluates_alone, print_steps, best_model, older_fillings, refused_arguments,
          accumulates_without_sync, accumulates_in_accelerate, resumes_without_optimizer)  # fmt: skip
