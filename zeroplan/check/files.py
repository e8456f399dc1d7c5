"""The findings of a file by its kind: a ds_config, alone or in another file, Accelerate's config, TrainingArguments."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from zeroplan.catalog.trainers.swift_configs import PUTS, is_own, own_config
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, LLAMA_FACTORY_1, SWIFT, tool_of
from zeroplan.catalog.trainers.tools import TRAINER as TRAINER_FILE
from zeroplan.check.arguments import SWITCHES, YAML, Arguments, has_own
from zeroplan.check.check import MOST, UNREADABLE, check, check_text, placed
from zeroplan.check.document import Document, Member
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Finding, Hit, named, said
from zeroplan.check.interpolated import is_interpolated, known_of
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import (
    DEEPSPEED,
    Kind,
    OtherKindError,
    block,
    has_no_key,
    is_others,
    is_script,
    is_yaml,
    kind_of,
    read_document,
    refuse,
    refuse_text,
)
from zeroplan.check.launch import FILE, KIND, PRECISION, SECTION, AccelerateConfig, as_yaml, field_of, inline
from zeroplan.check.partly_known import alone, decided
from zeroplan.check.proposed import tried
from zeroplan.check.python_reader import is_python
from zeroplan.check.rules import RULES
from zeroplan.check.rules.launch import LAUNCH_CHECKS
from zeroplan.check.rules.refused_files import REFUSED_CHECKS
from zeroplan.check.rules.trainer import ARGUMENT_CHECKS
from zeroplan.check.setting import ACCELERATE, TRAINER, Setting, guessed
from zeroplan.check.setting import DEEPSPEED as RAW
from zeroplan.deepspeed.read import refuse_models
from zeroplan.errors import SpecError

Beside = Callable[[str], tuple[str, str] | None]
"""Name and text of a file that another names; None where it is not there."""
Made = Callable[[Document, Setting, AccelerateConfig | None], Setting]
"""The setting of one config, which may follow from what it says."""
EXPECTED = "a ds_config, an Accelerate config or TrainingArguments with a deepspeed in them"
LOG = re.compile(r"^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:,]+\] \[[A-Z]+\]", re.MULTILINE)
"""How a line of DeepSpeed's log begins."""
EARLY = 50_000
"""Letters of a log that such a line is looked for in."""
TWICE = "ZP103"
Overrides = Iterable[tuple[str, Any]]
"""Fields of an Accelerate file that options of `accelerate launch` replace."""
WORDS = (
    "base_model", "model", "model_name_or_path", "output_dir", "deepspeed", "deepspeed_config", "distributed_type",
    "compute_environment",
)  # fmt: skip
"""One of them is in every file that is no ds_config and has, or names, one."""


@dataclass
class CheckedFiles:
    """Findings, and the texts of the files that they are in."""

    findings: list[Finding] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What a file was taken for, where that is not plain."""


def check_config_file(
    name: str, text: str, setting: Setting, beside: Beside, made: Made, overrides: Overrides = ()
) -> CheckedFiles:  # fmt: skip
    """Raises `SpecError` for what is no config at all, and for what is another's file."""
    if not text.lstrip().startswith("{") and LOG.search(text[:EARLY]):
        raise SpecError(name, "a log", EXPECTED, f"zeroplan observe {name}")
    if is_yaml(name, text):
        document = read_document(name, text, EXPECTED)
    elif (other := other_json(name, text)) is None:
        return CheckedFiles(check_json(name, text, setting, made), {name: text})
    else:
        document = other
    checked = _of_kind(document, setting, beside, made, overrides)
    return replace(checked, findings=[_without_edits(one, name) for one in checked.findings])


def is_other(name: str, text: str) -> bool:
    """Whether it is anything but a ds_config that is JSON, which alone is mended."""
    written = is_script(name, text) or is_python(name, text) or is_yaml(name, text)
    return written or other_json(name, text) is not None


def other_json(name: str, text: str) -> Document | None:
    """The file, where it is no ds_config, and has or names one; a file that is named as one may be anything."""
    if not any(f'"{word}"' in text for word in WORDS):
        return None
    try:
        document = read_document(name, text, EXPECTED)
    except NotReadableError:
        return None
    kind = kind_of(document)
    return None if kind is Kind.CONFIG or (kind is Kind.OTHER and DEEPSPEED not in document.config) else document


def _of_kind(
    document: Document, setting: Setting, beside: Beside, made: Made, overrides: Overrides = ()
) -> CheckedFiles:  # fmt: skip
    kind, texts = kind_of(document), {document.name: document.text}
    if kind is Kind.ACCELERATE:
        return _launched(AccelerateConfig(document, dict(overrides)), setting, beside, made)
    if kind is Kind.ARGUMENTS:
        return _trained(Arguments(document), setting, beside, made)
    if kind is Kind.OTHER:
        refuse(document, EXPECTED)
    known = known_of(document if kind is Kind.CONFIG else block(document), by_another=kind is Kind.BLOCK)
    config = known.document
    if known.unknown:
        (line, _path), *_others = known.unknown
        note = f"{document.name}:{line}: {decided('what ${...} stands for', known.unknown)}"
        return CheckedFiles(alone(config, setting, made), texts, [note])
    if kind is Kind.CONFIG:
        return CheckedFiles(check(config, made(config, setting, None)), texts)
    reader = guessed(config.config)
    setting = made(config, replace(setting, reader=reader, reader_is_known=True), None)
    how = {RAW: ", checked as DeepSpeed itself reads it", TRAINER: ', whose "auto" the Trainer fills in'}
    note = f"{document.name}: {Kind.BLOCK.value}{how.get(setting.reader, '')}"
    return CheckedFiles(check(config, setting), texts, [note])


def check_json(
    name: str, text: str, setting: Setting, made: Made, launch: AccelerateConfig | None = None
) -> list[Finding]:
    """What is found, and of what it proposes that which does. Raises `SpecError` for a model's config.json."""
    findings = findings_of(name, text, setting, made, launch)
    if not any(one.edits or one.write for one in findings):
        return findings
    try:
        document = read_json(name, text)
    except NotReadableError:
        return findings
    return tried(document, findings, lambda changed: _again(name, changed, setting, made, launch))


def _again(name: str, text: str, setting: Setting, made: Made, launch: AccelerateConfig | None) -> list[Finding]:
    """What is found in a changed text, but for what its ledger says: for whom it is may change with it."""
    try:
        document = read_json(name, text)
    except NotReadableError:
        return check_text(name, text, setting)
    return check(document, replace(made(document, setting, launch), planned=None))


def findings_of(
    name: str, text: str, setting: Setting, made: Made, launch: AccelerateConfig | None = None
) -> list[Finding]:
    """What is found, with everything that it proposes. Raises `SpecError` for a model's config.json."""
    try:
        document = read_json(name, text)
    except NotReadableError:
        refuse_text(name, text, EXPECTED)
        return check_text(name, text, setting)
    refuse_models(document.config, name)
    if has_no_key(document.config) or is_others(document.config):
        refuse(document, EXPECTED)
    return check(document, made(document, setting, launch))


def reached(
    name: str, text: str, setting: Setting, made: Made, launch: AccelerateConfig | None = None
) -> tuple[list[Finding], str]:
    """The findings of a file that another one names, and its text. Of what is no config nothing is quoted, and there is
    no text: whoever writes a YAML may name any file, and a log may be read by others than that file. One that lies in a
    tool's package is nobody's to change, and gets no advice.
    """
    if text.lstrip().startswith("{"):
        with suppress(NotReadableError):
            read_json(name, text)
            findings = check_json(name, text, setting, made, launch)
            return [one for one in findings if not (is_own(name) and one.severity == ADVICE)], text
    line, column = 1, 1
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        line, column = error.lineno, error.colno
    except (ValueError, RecursionError):
        pass
    rule = RULES[UNREADABLE]
    message = f"not JSON, line {line} column {column}"
    return [Finding(rule.id, rule.severity, name, line, column, column + 1, "", message, "", rule.link)], ""


def check_arguments(arguments: Arguments) -> list[Finding]:
    """What TrainingArguments say that no config is needed to see."""
    rules = (*ARGUMENT_CHECKS, *REFUSED_CHECKS)
    return [placed(arguments.document, hit) for rule in rules for hit in islice(rule(arguments), MOST)]


def _launched(launch: AccelerateConfig, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    document = launch.document
    reader = ACCELERATE if setting.arguments is None else TRAINER  # which compares what Accelerate makes with its own
    setting = replace(setting, reader=reader, gpus=setting.gpus or launch.processes, by_launcher=True)
    checked, stage = CheckedFiles([], {document.name: document.text}), None
    inner: list[Finding] = []
    if launch.is_deepspeed and launch.config_file is None:
        config = inline(replace(launch, overrides={**launch.overrides, **_own_half(setting.arguments)}))
        stage = config.config["zero_optimization"]["stage"]
        inner = [_in_yaml(one) for one in check(config, made(config, setting, launch))] if launch.fields else []
    elif launch.is_deepspeed and (named_file := beside(str(launch.config_file))) is None:
        inner = [_missing(document, str(launch.config_file))]
    elif launch.is_deepspeed and named_file:
        inner, checked.texts[named_file[0]] = reached(*named_file, setting, made, launch)
        stage = _stage(*named_file)
    hits = [placed(document, hit) for rule in LAUNCH_CHECKS for hit in islice(rule(launch, stage), MOST)]
    checked.findings = _twice(document, "accelerate launch takes the last", WARNING) + hits + inner
    if not (launch.is_deepspeed or checked.findings):
        line, column = document.place(document.members[KIND,].start)
        what = f"distributed_type: {said(launch.kind)}, an Accelerate config that starts no DeepSpeed"
        raise OtherKindError(f"{document.name}:{line}:{column}", what, EXPECTED)
    return checked


def _twice(document: Document, does: str, severity: str) -> list[Finding]:
    """Keys that stand twice, and what the reader of the file does."""
    several = ((path, member) for path, _first, member in document.repeated())
    hits = (Hit(TWICE, path, f"{named(one.name)} is there twice: {does}", "delete one of them", severity, one.start)
            for path, one in several)  # fmt: skip
    return [placed(document, hit) for hit in islice(hits, MOST)]


def _own_half(arguments: Arguments | None) -> dict[str, str]:
    """The precision that TrainingArguments turn on, which the Trainer takes in place of the launcher's (transformers
    training_args.py: mixed_precision).
    """
    halves = [half for half in SWITCHES if arguments is not None and arguments(half) is True]
    return {PRECISION: halves[0]} if halves else {}


def _trained(arguments: Arguments, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config that `deepspeed` names, or is."""
    document = arguments.document
    if arguments.tool == LLAMA_FACTORY_1:
        return _by_v1(document, setting, beside, made)
    member = document.members.get((DEEPSPEED,))
    if member is None or (member.node.members is None and member.node.scalar in (None, False, "")):
        raise _without_config(document, member)
    checked = CheckedFiles(texts={document.name: document.text})
    if tool_of(document.config) is not None or has_own(document.config):
        arguments = replace(arguments, command_line=_of_command_line(setting.arguments))
        setting = replace(setting, reader=TRAINER, arguments=arguments)
        checked.findings += check_arguments(arguments)
    if arguments.tool == LLAMA_FACTORY:
        checked.findings += _twice(document, "LLaMA-Factory stops", ERROR)
    if member.node.members is not None:
        known = known_of(block(document))
        if known.unknown:
            (line, _path), *_others = known.unknown
            checked.findings += alone(known.document, setting, made)
            checked.notes.append(f"{document.name}:{line}: {decided('what ${...} stands for', known.unknown)}")
            return checked
        checked.findings += check(known.document, made(known.document, setting, None))
    elif is_interpolated(member.node.scalar):
        line, column = document.place(member.node.start)
        what = f"deepspeed: {said(member.node.scalar)}, which stands for what another file says"
        raise OtherKindError(f"{document.name}:{line}:{column}", what, "a ds_config.json")
    elif (named_file := _written(arguments, member.node.scalar) or beside(str(member.node.scalar))) is None:
        raise SpecError(document.name, f"deepspeed {said(member.node.scalar)}, which is not there", "a ds_config.json")
    else:
        inner, checked.texts[named_file[0]] = reached(*named_file, setting, made)
        checked.findings += inner
    return checked


def _written(arguments: Arguments, stated: object) -> tuple[str, str] | None:
    """A config as a text of JSON, which transformers and ms-swift parse, or of ms-swift's package, in a file that is of
    no other tool.
    """
    if isinstance(stated, str) and stated.lstrip().startswith("{"):
        return f"deepspeed of {arguments.document.name}", stated
    return own_config(stated, puts_of(arguments)) if arguments.tool in (SWIFT, TRAINER_FILE) else None


def puts_of(arguments: Arguments) -> dict[str, Any]:
    """Keys that ms-swift puts into a config of its own."""
    return {path: value for name, path in PUTS.items() if (value := arguments.stated(name)) is not None}


def _by_v1(document: Document, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config of LLaMA-Factory's v1, which hands it to Accelerate with an AdamW and a schedule of its own
    (0.9.5 v1/core/base_trainer.py, v1/plugins/trainer_plugins/distributed/deepspeed.py).
    """
    member = document.members.get(("dist_config", "config_file"))
    if member is None or document.config["dist_config"].get("name") != DEEPSPEED:
        raise _without_config(document, None, "dist_config: {name: deepspeed, config_file: ds_config.json}")
    if (named_file := beside(str(member.node.scalar))) is None:
        named = f"config_file {said(member.node.scalar)}"
        raise SpecError(document.name, f"{named}, which is not there", "a ds_config.json")
    optimizer = None if document.config.get("optim_config") else "adamw_torch"
    setting = replace(setting, reader=ACCELERATE, reader_is_known=True, arguments=None, tool=LLAMA_FACTORY_1,
                      client_optimizer=True, optimizer=setting.optimizer or optimizer)  # fmt: skip
    findings, text = reached(*named_file, setting, made)
    return CheckedFiles(findings, {document.name: document.text, named_file[0]: text})


def _of_command_line(arguments: Arguments | None) -> Arguments | None:
    """Those that stand in the script that names a training file."""
    return arguments if arguments is None or arguments.job is not None else arguments.command_line


def _without_config(
    document: Document, member: Member | None, expected: str = "deepspeed: and the name of one"
) -> OtherKindError:  # fmt: skip
    """Why a training file is not checked; whose it is is said where its keys tell."""
    tool = tool_of(document.config)
    names_none = f"a training file{f' of {tool}' if tool else ''} that names no DeepSpeed config"
    at, found = document.name, names_none
    if member is not None:
        line, column = document.place(member.start)
        at, found = f"{document.name}:{line}:{column}", f"deepspeed: {said(member.node.scalar)}, {names_none}"
    write = f"zeroplan check ds_config.json --trainer-args {document.name}"
    return OtherKindError(at, found, expected, write)


def _without_edits(finding: Finding, name: str) -> Finding:
    """Edits are those of a ds_config that is JSON, and a file that names one, or is YAML, gets none."""
    return replace(finding, edits=()) if finding.file == name or finding.file.endswith(YAML) else finding


def _stage(name: str, text: str) -> object:
    try:
        section = read_json(name, text).config.get("zero_optimization")
    except NotReadableError:
        return None
    return section.get("stage") if isinstance(section, dict) else None


def _in_yaml(finding: Finding) -> Finding:
    """In the words of the file."""
    return replace(finding, path=field_of(finding.path), write=as_yaml(finding.write))


def _missing(document: Document, path: str) -> Finding:
    return placed(document, Hit("ZP811", (SECTION, FILE), f"{said(path)} is not there: Accelerate stops",
                                f"{FILE}: a ds_config.json that is"))  # fmt: skip
