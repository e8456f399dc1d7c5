"""The findings of a file of `accelerate launch`, and of the ds_config that it names or becomes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from zeroplan.catalog.trainers.trl_configs import is_own_accelerate_config
from zeroplan.check.accelerate_config import (
    FILE,
    KIND,
    PRECISION,
    SECTION,
    AccelerateConfig,
    as_yaml,
    field_of,
    in_fields,
    inline,
)
from zeroplan.check.arguments import SWITCHES, Arguments
from zeroplan.check.check import MOST, check, placed
from zeroplan.check.document import Beside, Document
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Finding, Hit, said
from zeroplan.check.finding import path as quoted
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import OtherKindError
from zeroplan.check.launch_files import read_beside
from zeroplan.check.named_config import EXPECTED, CheckedFiles, Made, reached, twice
from zeroplan.check.rules.accelerate import FILE_CHECKS, automatic_steps, built_whole, fp8_beside_a_half, fp8_left_out
from zeroplan.check.rules.hosts import ranks_of_machines
from zeroplan.check.setting import ACCELERATE, TRAINER, Setting

Overrides = Iterable[tuple[str, Any]]
"""Fields of an Accelerate file that options of `accelerate launch` replace."""


def check_accelerate_config(accelerate: AccelerateConfig, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    document = accelerate.document
    reader = ACCELERATE if setting.arguments is None else TRAINER  # which compares what Accelerate makes with its own
    setting = replace(setting, reader=reader, gpus=setting.gpus or accelerate.processes, by_launcher=True)
    checked, stage = CheckedFiles([], {document.name: document.text}), None
    inner: list[Finding] = []
    if accelerate.is_deepspeed and accelerate.config_file is None:
        config = inline(replace(accelerate, overrides={**accelerate.overrides, **_own_half(setting.arguments)}))
        stage = config.config["zero_optimization"]["stage"]
        inner = [_in_yaml(one) for one in check(config, made(config, setting, accelerate))] if accelerate.fields else []
    elif accelerate.is_deepspeed and (named_file := beside(str(accelerate.config_file))) is None:
        inner = [_missing(document, str(accelerate.config_file))]
    elif accelerate.is_deepspeed and named_file:
        inner, checked.texts[named_file[0]] = reached(*named_file, setting, made, accelerate)
        stage = _stage(*named_file)
        if str(accelerate.config_file).startswith("../"):
            where = f"{document.name}: {accelerate.config_file} was looked for beside that file and is {named_file[0]}"
            checked.notes.append(f"{where}; accelerate launch looks from where it is started")
    hits = [placed(document, hit) for rule in FILE_CHECKS for hit in islice(rule(accelerate, stage), MOST)]
    named_hosts = accelerate.fields.get("deepspeed_hostfile")
    hosts = read_beside(named_hosts, beside) if isinstance(named_hosts, str) else None
    hits += [placed(document, hit) for hit in built_whole(accelerate, stage, setting.accelerate)]
    hits += [placed(document, hit) for hit in fp8_left_out(accelerate, setting.accelerate, setting.precision)]
    hits += [placed(document, hit) for hit in fp8_beside_a_half(accelerate, setting.arguments)]
    hits += [placed(document, hit) for hit in automatic_steps(accelerate, setting.accumulates)]
    hits += [placed(document, hit) for hit in ranks_of_machines(accelerate, hosts)]
    if is_own_accelerate_config(document.name):  # in a package, where nobody changes it
        inner = [one for one in inner if one.severity != ADVICE]
    checked.findings = twice(document, "accelerate launch takes the last", WARNING) + hits + inner
    if not (accelerate.is_deepspeed or checked.findings):
        line, column = document.place(document.members[KIND,].start)
        what = f"distributed_type: {said(accelerate.kind)}, an Accelerate config that starts no DeepSpeed"
        raise OtherKindError(f"{document.name}:{line}:{column}", what, EXPECTED)
    return checked


def _own_half(arguments: Arguments | None) -> dict[str, str]:
    """The precision that TrainingArguments turn on, which the Trainer takes in place of the launcher's (transformers
    training_args.py: mixed_precision).
    """
    halves = [half for half in SWITCHES if arguments is not None and arguments(half) is True]
    return {PRECISION: halves[0]} if halves else {}


def _stage(name: str, text: str) -> object:
    try:
        section = read_json(name, text).config.get("zero_optimization")
    except NotReadableError:
        return None
    return section.get("stage") if isinstance(section, dict) else None


def _in_yaml(finding: Finding) -> Finding:
    """In the words of the file."""
    message = in_fields(finding.message)
    return replace(finding, path=field_of(finding.path), write=as_yaml(finding.write), message=message)


def _missing(document: Document, path: str) -> Finding:
    severity = WARNING if path.startswith("/") else ERROR  # it may be there on the machine that trains
    return placed(document, Hit("ZP811", (SECTION, FILE), f"{quoted(path)} is not there: Accelerate stops",
                                f"{FILE}: a ds_config.json that is", severity))  # fmt: skip
