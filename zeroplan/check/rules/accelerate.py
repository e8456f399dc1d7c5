"""8xx: what Accelerate makes of a file for `accelerate launch`. Each was run through accelerate 1.15."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any

from zeroplan.check.accelerate_config import (
    DEEPSPEED,
    FILE,
    HALVES,
    PRECISION,
    SECTION,
    TOP,
    AccelerateConfig,
    leaves_auto,
    minds_init_flag,
    takes_fp8,
)
from zeroplan.check.arguments import SWITCHES, Arguments
from zeroplan.check.finding import ERROR, WARNING, Hit, named, number, said
from zeroplan.check.kind import JSON
from zeroplan.check.ranks import is_port
from zeroplan.check.rule import Example, Rule, launching
from zeroplan.check.setting import ACCELERATE
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.values import AUTO

LINK = "https://huggingface.co/docs/accelerate/usage_guides/deepspeed"
PLUGIN = "accelerate: utils/dataclasses.py:DeepSpeedPlugin"
IN_CONFIG = (
    "gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device",
    "offload_param_device", "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model",
)  # fmt: skip
"""Fields that stand in the file that deepspeed_config_file names (_deepspeed_config_checks)."""
FIELDS = (
    *IN_CONFIG, FILE, "zero3_init_flag", "deepspeed_hostfile", "deepspeed_exclusion_filter",
    "deepspeed_inclusion_filter", "deepspeed_multinode_launcher", "deepspeed_moe_layer_cls_names",
)  # fmt: skip
KINDS = (
    "NO", "MULTI_CPU", "MULTI_HPU", "MULTI_GPU", "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU",
    "MULTI_NEURON", DEEPSPEED, "FSDP", "XLA", "MEGATRON_LM",
)  # fmt: skip
"""Values of utils/dataclasses.py:DistributedType."""
LOCAL = "LOCAL_MACHINE"
FP8 = "fp8"
PRECISIONS = ("no", "fp16", "bf16", FP8)
NEAR = 0.8
"""How like a key a name is that was meant for it."""
ON_OR_OFF = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")
"""What utils/environment.py:str_to_bool takes."""
NVME_PATHS = ("offload_optimizer_nvme_path", "offload_param_nvme_path")
Z2, Z3 = "zero_stage: 2", "zero_stage: 3, zero3_save_16bit_model: true"
DISK = ", offload_optimizer_device: nvme, offload_optimizer_nvme_path: /local_nvme"
FILLED_CLIP = 1.0
"""What Accelerate makes of "auto" for it (1.15 accelerator.py:_prepare_deepspeed)."""
CLIP, NUMBER = "gradient_clipping", re.compile(r"\d+(?:\.\d*)?")
STEPS, LAUNCHED = "gradient_accumulation_steps", "accelerate launch --config_file accelerate.yaml train.py\n"
ACCUMULATING = (
    '{"distributed_type": "DEEPSPEED", "num_processes": 8, "mixed_precision": "bf16", "deepspeed_config": '
    '{"zero_stage": 2, "gradient_accumulation_steps": %d}, "main_training_function": '
    '"Accelerator(gradient_accumulation_steps=4)"}\n'
)
"""YAML, and a script in Python."""
CLIPPING = (
    '{"distributed_type": "DEEPSPEED", "num_processes": 8, "mixed_precision": "bf16", "deepspeed_config": '
    '{"zero_stage": 2, "gradient_clipping": %s}, "main_training_function": '
    '"accelerator.clip_grad_norm_(model.parameters(), 0.5)"}\n'
)
OWN_FILE = f"{FILE}: ds_config.json"

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP802", ERROR, "Fields beside a deepspeed_config_file", f"{PLUGIN}._deepspeed_config_checks, run: ValueError",
        launching(OWN_FILE + ", zero_stage: 3"), launching(OWN_FILE + ", zero3_init_flag: false"), LINK,
    ),
    Rule(
        "ZP805", WARNING, "zero3_init_flag below stage 3", f"{PLUGIN}, run: a warning, and false",
        launching(Z2 + ", zero3_init_flag: true"), launching(Z3 + ", zero3_init_flag: true"), LINK,
    ),
    Rule(
        "ZP806", WARNING, "Stage 3 without zero3_init_flag, in an Accelerate that minds it",
        "accelerate 0.34, 1.0.0: utils/dataclasses.py:set_deepspeed_weakref, read; 1.15, run: from_pretrained divides",
        launching(Z3 + ", zero3_init_flag: false", accelerate="0.34.2"),
        launching(Z3 + ", zero3_init_flag: false", accelerate="1.0.1"), LINK,
    ),
    Rule(
        "ZP857", WARNING, "fp8 that does not reach DeepSpeed",
        "accelerate 0.30 to 1.10: state.py:mixed_precision, read; 1.15 with its backend stubbed, run: fp8_enabled",
        launching(Z2, "mixed_precision: fp8, ", accelerate="1.3.0"),
        launching(Z2, "mixed_precision: fp8, ", accelerate="1.11.0"),
        "https://github.com/huggingface/accelerate/issues/3360",
    ),
    Rule(
        "ZP811", ERROR, "A file that accelerate launch does not read",
        "accelerate: commands/config/config_args.py, run: ValueError; for a bare no, AttributeError",
        launching(Z2, "mixed_precision: no, "), launching(Z2, "mixed_precision: 'no', "), LINK,
    ),
    Rule(
        "ZP812", WARNING, "A field without effect", "accelerate: commands/launch.py, run: ignored without a word",
        launching("zero_stages: 3"), launching(Z3), LINK,
    ),
    Rule(
        "ZP813", WARNING, "A path to NVMe that does not reach DeepSpeed",
        "accelerate: utils/launch.py:prepare_deepspeed_cmd_env, run: nvme_path is \"none\"",
        launching(Z3 + DISK), launching(Z3 + ", offload_optimizer_device: cpu"), LINK,
    ),
    Rule(
        "ZP823", WARNING, "Several machines that do not find each other",
        "accelerate: utils/launch.py:prepare_deepspeed_cmd_env, run: --hostfile None; deepspeed: local resources only",
        launching(Z3, "num_machines: 2, "),
        launching(Z3 + ", deepspeed_multinode_launcher: standard", "num_machines: 2, main_process_ip: 10.0.0.1, "),
        "https://github.com/huggingface/accelerate/issues/2601",
    ),
    Rule(
        "ZP848", WARNING, "Accumulation that the script's Accelerator and the config say otherwise",
        "accelerate 1.15: commands/launch.py, run: the config's counts; for auto ValueError: invalid literal for int()",
        Example(LAUNCHED, file="run.sh", beside=ACCUMULATING % 1),
        Example(LAUNCHED, file="run.sh", beside=ACCUMULATING % 4),
        "https://github.com/huggingface/accelerate/issues/3369",
    ),
    Rule(
        "ZP852", WARNING, "Clipping that the script asks for and the config does otherwise",
        "accelerate 1.15: accelerator.py:clip_grad_norm_, run with 0.19.8: the step has the config's norm",
        Example(LAUNCHED, file="run.sh", beside=CLIPPING % 1), Example(LAUNCHED, file="run.sh", beside=CLIPPING % 0.5),
        "https://github.com/huggingface/accelerate/issues/3807",
    ),
)  # fmt: skip


def not_read(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    config = accelerate.document.config
    if str(config.get("compute_environment", LOCAL)) != LOCAL:
        return
    for name in config:
        if name not in TOP:
            others = [one for one in TOP if one not in config]
            near = (difflib.get_close_matches(name, others, n=1, cutoff=NEAR) or [""])[0]
            write = f"{near}: ..." if near else f"under {SECTION}" if name in FIELDS else "delete it"
            yield Hit("ZP811", (name,), f"{named(name)} is no key of Accelerate's: accelerate launch stops", write)
    if "distributed_type" not in config:
        yield Hit("ZP811", (SECTION,), "no distributed_type: accelerate launch stops", "distributed_type: DEEPSPEED")
    elif accelerate.kind not in (*KINDS, None):
        yield Hit("ZP811", ("distributed_type",), f"{said(config['distributed_type'])} for distributed_type: "
                  "accelerate launch stops", "distributed_type: DEEPSPEED")  # fmt: skip
    is_read = accelerate.is_deepspeed and PRECISION not in accelerate.overrides
    precision = config.get(PRECISION) if is_read else None
    if precision is False:
        yield Hit("ZP811", ("mixed_precision",), "no without quotes is false in YAML: accelerate launch stops",
                  "mixed_precision: 'no'")  # fmt: skip
    elif precision is not None and str(precision).lower() not in PRECISIONS:
        yield Hit("ZP811", ("mixed_precision",), f"{said(precision)} for mixed_precision: accelerate launch stops",
                  "mixed_precision: bf16")  # fmt: skip


def types(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    """Values of another type than the launcher takes (run: AttributeError, TypeError, ValueError)."""
    config, fields = accelerate.document.config, accelerate.fields
    if (machine := config.get("compute_environment", LOCAL)) != LOCAL and str(machine).upper() != "AMAZON_SAGEMAKER":
        yield Hit("ZP811", ("compute_environment",), f"{said(machine)} for compute_environment: accelerate launch "
                  "takes the file for SageMaker's, and stops", f"compute_environment: {LOCAL}")  # fmt: skip
    if not accelerate.is_deepspeed:
        return
    section = config.get(SECTION)
    if section is not None and not isinstance(section, dict):
        write = f"{SECTION}: {{zero_stage: 2}}"
        if isinstance(section, str):
            write = f"{SECTION}: {{{FILE}: {named(section)}}}"
        yield Hit("ZP811", (SECTION,), f"{said(section)} for {SECTION}, a mapping of fields: accelerate launch stops",
                  write)  # fmt: skip
    ids, port = config.get("gpu_ids"), config.get("main_process_port")
    if ids is not None and not isinstance(ids, str):
        joined = ",".join(str(one) for one in (ids if isinstance(ids, list) else [ids]))
        yield Hit("ZP811", ("gpu_ids",), f"{said(ids)} for gpu_ids, which is a text: accelerate launch stops",
                  f"gpu_ids: '{named(joined)}'")  # fmt: skip
    if isinstance(port, str):
        meant = port if is_port(port) else 29500
        yield Hit("ZP811", ("main_process_port",), f"{said(port)} for main_process_port, which is a number: accelerate "
                  "launch stops", f"main_process_port: {meant}")  # fmt: skip
    if isinstance(address := config.get("main_process_ip"), str) and " " in address.strip():
        what = f"{said(address)} for main_process_ip, which is an address: torchrun stops, if no option gives another"
        yield Hit("ZP811", ("main_process_ip",), what, "main_process_ip: 10.0.0.1", WARNING)
    stage, flag = fields.get("zero_stage"), fields.get("zero3_init_flag")
    if isinstance(stage, str) and not stage.strip().isdecimal() and accelerate.config_file is None:
        yield Hit("ZP811", (SECTION, "zero_stage"), f"{said(stage)} for zero_stage: Accelerate stops", "zero_stage: 3")
    if flag is not None and str(flag).lower() not in ON_OR_OFF:
        yield Hit("ZP811", (SECTION, "zero3_init_flag"), f"{said(flag)} for zero3_init_flag: Accelerate stops",
                  "zero3_init_flag: true")  # fmt: skip


def numbers(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    """What num_processes becomes on torchrun's command line (run: AssertionError, ValueError), and num_machines."""
    if not accelerate.is_deepspeed:
        return
    for name, write in (("num_processes", "8"), ("num_machines", "1")):
        value = accelerate.document.config.get(name)
        if value is None or (type(value) is int and value > 0):
            continue
        stops = name == "num_processes" and not isinstance(value, str)
        does = "accelerate launch stops" if stops else "it is no whole number from 1 up"
        yield Hit("ZP811", (name,), f"{said(value)} for {name}: {does}", f"{name}: {write}", "" if stops else WARNING)


def beside_a_file(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    if accelerate.config_file is None or not accelerate.is_deepspeed:
        return
    for path in _also_in_a_config(accelerate):
        yield Hit("ZP802", path, f"{path[-1]} beside {FILE}: Accelerate stops, the file itself must say it",
                  "delete it")  # fmt: skip


def beside_the_scripts_config(accelerate: AccelerateConfig, config: str, by: str) -> Iterator[Hit]:
    """`config`: what the script's own `deepspeed`, which the Trainer hands to the same DeepSpeedPlugin, or the option
    of `accelerate launch` names; `by`: which of the two.
    """
    for path in _also_in_a_config(accelerate) if accelerate.is_deepspeed else ():
        yield Hit("ZP802", path, f"{path[-1]} beside {said(config)}, which {by} names: "
                  "Accelerate stops, that file must say it", "delete it")  # fmt: skip


def _also_in_a_config(accelerate: AccelerateConfig) -> list[tuple[str, ...]]:
    """Fields at which Accelerate stops where a ds_config is named."""
    stated: list[tuple[str, ...]] = [(SECTION, name) for name in accelerate.names if name in IN_CONFIG]
    has_precision = accelerate.document.config.get(PRECISION) is not None and PRECISION not in accelerate.overrides
    return [*stated, (PRECISION,)] if has_precision else stated


def initialisation(accelerate: AccelerateConfig, stage: Any) -> Iterator[Hit]:
    if not accelerate.is_deepspeed:
        return
    flag = str(accelerate.fields.get("zero3_init_flag", "")).lower()
    path = (SECTION, "zero3_init_flag")
    if flag == "true" and stage in (0, 1, 2):
        yield Hit("ZP805", path, f"zero3_init_flag does nothing at stage {stage}: Accelerate sets it to false",
                  "zero3_init_flag: false")  # fmt: skip


def built_whole(accelerate: AccelerateConfig, stage: Any, release: str | None) -> Iterator[Hit]:
    """Models that every rank builds whole: before 1.0 from_pretrained is not told of stage 3; 1.0.0 leaves "auto" in it
    (utils/dataclasses.py:set_deepspeed_weakref). `release`: the Accelerate that the project asks for.
    """
    is_off = str(accelerate.fields.get("zero3_init_flag", "")).lower() == "false"
    if not accelerate.is_deepspeed or not is_off or stage != 3 or release is None:
        return
    path = (SECTION, "zero3_init_flag")
    if minds_init_flag(release):
        yield Hit("ZP806", path, f"accelerate {release}: every rank builds the whole model before it is divided: host "
                  "memory for as many copies as there are ranks on a node", "zero3_init_flag: true")  # fmt: skip
    elif leaves_auto(release):
        yield Hit("ZP806", path, f'accelerate {release} leaves an "auto" of the batch where from_pretrained reads the '
                  "config, and DeepSpeed stops at it", "accelerate>=1.0.1, or zero3_init_flag: true")  # fmt: skip


def _asks_for_fp8(accelerate: AccelerateConfig) -> tuple[str, ...]:
    """Where the file says it; at its section where an option or the script does."""
    return (PRECISION,) if accelerate.document.config.get(PRECISION) == FP8 else (SECTION,)


def fp8_left_out(accelerate: AccelerateConfig, release: str | None, asked_for: str | None) -> Iterator[Hit]:
    """Say where fp8 does not reach the model. `asked_for`: the precision that the script's own Accelerator is given."""
    by_script = asked_for == FP8
    is_asked = accelerate.is_deepspeed and (by_script or accelerate.precision == FP8)
    if not is_asked or takes_fp8(release, by_script=by_script):
        return
    instead = "" if takes_fp8(release, by_script=True) else ", and an FP8RecipeKwargs stops it"
    write = "accelerate>=1.11" if instead else "Accelerator(mixed_precision=\"fp8\") in the script, or accelerate>=1.11"
    what = f"fp8 under DeepSpeed: accelerate {release} trains in the config's own precision{instead}"
    yield Hit("ZP857", _asks_for_fp8(accelerate), what, write)


def fp8_beside_a_half(accelerate: AccelerateConfig, arguments: Arguments | None) -> Iterator[Hit]:
    """The Trainer's own half takes its place (transformers 5.24 training_args.py; run with 1.15: fp8_enabled False)."""
    half = next((half for half in SWITCHES if arguments is not None and arguments(half) is True), "")
    if arguments is not None and half and accelerate.is_deepspeed and accelerate.precision == FP8:
        what = f"fp8 beside {half} of TrainingArguments ({arguments.place(half)}), which takes its place"
        yield Hit("ZP857", _asks_for_fp8(accelerate), what, f"{half}: false there")


def without_effect(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    for name in HALVES:
        if isinstance(accelerate.document.config.get(name), dict):
            yield Hit("ZP812", (name,), f"{name} here is no section of a ds_config: accelerate launch drops it",
                      f"mixed_precision: {name}, or the section in the file that {FILE} names")  # fmt: skip
    if accelerate.fields and not accelerate.is_deepspeed and accelerate.kind in KINDS:
        yield Hit("ZP812", ("distributed_type",), f"{SECTION} is not read under distributed_type {accelerate.kind}",
                  "distributed_type: DEEPSPEED")  # fmt: skip
    for name in accelerate.names if accelerate.is_deepspeed else accelerate.fields:
        if name.lower().endswith(JSON):
            yield Hit("ZP812", (SECTION, name), f"{named(name)} as a field, not as the value of one: Accelerate does "
                      "not read that file", f"{SECTION}: {{{FILE}: {named(name)}}}", ERROR)  # fmt: skip
        elif name in TOP:
            yield Hit("ZP812", (SECTION, name), f"{name} is no field of {SECTION}: accelerate launch takes it for its "
                      "own option", f"{name} at the top level")  # fmt: skip
        elif name not in FIELDS:
            near = (difflib.get_close_matches(name, FIELDS, n=1) or [""])[0]
            yield Hit("ZP812", (SECTION, name), f"{named(name)} is no field of Accelerate's, which ignores it",
                      f"{near}: ..." if near else f"in the ds_config.json that {FILE} names")  # fmt: skip


def lost_paths(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    if accelerate.config_file is not None or not accelerate.is_deepspeed:
        return
    for name in NVME_PATHS:
        device = accelerate.fields.get(name.replace("nvme_path", "device"))
        if str(device).lower() == "nvme":
            path = (SECTION, name if name in accelerate.fields else name.replace("nvme_path", "device"))
            yield Hit("ZP813", path, 'accelerate launch does not hand the path on: DeepSpeed swaps into a folder '
                      '"none"', f'"nvme_path" in the ds_config.json that {FILE} names')  # fmt: skip


def accumulates_otherwise(subject: Subject) -> Iterator[Hit]:
    """An Accelerator of the script's own takes the config's number, with a warning in a log."""
    asked_for, stated = subject.setting.accumulates, subject.stated(STEPS)
    if subject.setting.reader != ACCELERATE or asked_for is None or type(stated) is not int or stated == asked_for:
        return
    what = f"the script's Accelerator accumulates {asked_for} micro-batches, and the config's {stated} counts"
    yield Hit("ZP848", subject.spelled(STEPS) or (STEPS,), what, f'"{STEPS}": {asked_for}')


def clips_otherwise(subject: Subject) -> Iterator[Hit]:
    """Under DeepSpeed the script's call clips nothing: what the config says does, 1 where Accelerate fills it, and the
    default of DeepSpeed where nothing does (run: 1 in 0.19.8).
    """
    setting, stated = subject.setting, subject.stated(CLIP)
    if setting.reader != ACCELERATE or not setting.clips:
        return
    by_field = stated is None and not subject.document.name.lower().endswith(JSON)
    clips = FILLED_CLIP if by_field or stated == AUTO else subject.facts(CLIP)
    own = float(setting.clips) if NUMBER.fullmatch(setting.clips) else None
    if not isinstance(clips, int | float) or clips == own or (own is None and clips):
        return
    does = f"{number(clips)} does, not {setting.clips}" if clips else "nothing does"
    write = f'"{CLIP}": {setting.clips if own is not None else FILLED_CLIP}'
    what = f"accelerator.clip_grad_norm_ clips nothing under DeepSpeed: {does}"
    yield Hit("ZP852", subject.spelled(CLIP), what, write)


def automatic_steps(accelerate: AccelerateConfig, accumulates: int | None) -> Iterator[Hit]:
    """The launcher hands the field on, of which an Accelerator of the script's own makes a number; the Trainer's does
    not.
    """
    if accelerate.is_deepspeed and accumulates is not None and accelerate.fields.get(STEPS) == AUTO:
        what = f'"auto" for {STEPS}: an Accelerator of the script\'s own makes a number of it, and stops'
        yield Hit("ZP848", (SECTION, STEPS), what, f"{STEPS}: {accumulates}", ERROR)


def machines_apart(accelerate: AccelerateConfig, _stage: Any) -> Iterator[Hit]:
    if not accelerate.reaches_others:
        yield Hit("ZP823", ("num_machines",), f"num_machines {accelerate.machines} without a deepspeed_hostfile: each "
                  f"machine trains by itself, on {accelerate.processes or 'its'} ranks",
                  "deepspeed_multinode_launcher: standard, with main_process_ip")  # fmt: skip


FILE_CHECKS: tuple[Callable[[AccelerateConfig, Any], Iterator[Hit]], ...] = (
    not_read, types, numbers, beside_a_file, initialisation, without_effect, lost_paths, machines_apart,
)  # fmt: skip
CHECKS = (accumulates_otherwise, clips_otherwise)
