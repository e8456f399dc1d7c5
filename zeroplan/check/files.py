"""The findings of a file by its kind: a ds_config.json, a YAML for accelerate launch, a YAML of TrainingArguments."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from zeroplan.catalog.trainers.tools import tool_of
from zeroplan.check.arguments import YAML, Arguments
from zeroplan.check.check import MOST, UNREADABLE, check, check_text, placed
from zeroplan.check.document import Document, ValueNode
from zeroplan.check.finding import Finding, Hit, said
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.launch import FILE, SECTION, AccelerateConfig, as_yaml, field_of, inline, is_launch
from zeroplan.check.proposed import tried
from zeroplan.check.rules import RULES
from zeroplan.check.rules.launch import LAUNCH_CHECKS
from zeroplan.check.rules.trainer import ARGUMENT_CHECKS
from zeroplan.check.setting import ACCELERATE, TRAINER, Setting
from zeroplan.deepspeed.read import refuse_models
from zeroplan.errors import SpecError

Beside = Callable[[str], tuple[str, str] | None]
"""Name and text of a file that another names; None where it is not there."""
Made = Callable[[Document, Setting, AccelerateConfig | None], Setting]
"""The setting of one config, which may follow from what it says."""
EXPECTED = "an Accelerate config, or TrainingArguments with a deepspeed in them"
TRAINING_WORDS = ("base_model", "model", "model_name_or_path", "output_dir")
"""One of them is in every training file."""


@dataclass
class CheckedFiles:
    """Findings, and the texts of the files that they are in."""

    findings: list[Finding] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)


def check_file(name: str, text: str, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """Raises `SpecError` for what is no config at all, and for YAML that is none of both kinds."""
    if not name.endswith(YAML):
        document = training_json(name, text)
        if document is None:
            return CheckedFiles(check_json(name, text, setting, made), {name: text})
        checked = _trained(Arguments(document), setting, beside, made)
        return replace(checked, findings=[_without_edits(one, name) for one in checked.findings])
    from zeroplan.check.yaml_reader import read_yaml

    document = read_yaml(name, text, EXPECTED)
    if is_launch(document):
        checked = _launched(AccelerateConfig(document), setting, beside, made)
    else:
        checked = _trained(Arguments(document), setting, beside, made)
    return replace(checked, findings=[_as_fixed(one) for one in checked.findings])


def training_json(name: str, text: str) -> Document | None:
    """The file, where it is the training file of another tool and no ds_config."""
    if not any(f'"{word}"' in text for word in TRAINING_WORDS):
        return None
    try:
        document = read_json(name, text)
    except NotReadableError:
        return None
    return None if tool_of(document.config) is None else document


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
        return check_text(name, text, setting)
    refuse_models(document.config, name)
    return check(document, made(document, setting, launch))


def _reached(
    name: str, text: str, setting: Setting, made: Made, launch: AccelerateConfig | None = None
) -> tuple[list[Finding], str]:
    """The findings of a file that another one names, and its text. Of what is no config nothing is quoted, and there is
    no text: whoever writes a YAML may name any file, and a log may be read by others than that file.
    """
    if text.lstrip().startswith("{"):
        with suppress(NotReadableError):
            read_json(name, text)
            return check_json(name, text, setting, made, launch), text
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
    return [placed(arguments.document, hit) for rule in ARGUMENT_CHECKS for hit in islice(rule(arguments), MOST)]


def _launched(launch: AccelerateConfig, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    document = launch.document
    setting = replace(setting, reader=ACCELERATE, gpus=setting.gpus or launch.processes)
    checked, stage = CheckedFiles([], {document.name: document.text}), None
    inner: list[Finding] = []
    if launch.is_deepspeed and launch.config_file is None:
        config = inline(launch)
        stage = config.config["zero_optimization"]["stage"]
        inner = [_in_yaml(one) for one in check(config, made(config, setting, launch))] if launch.fields else []
    elif launch.is_deepspeed and (named_file := beside(str(launch.config_file))) is None:
        inner = [_missing(document, str(launch.config_file))]
    elif launch.is_deepspeed and named_file:
        inner, checked.texts[named_file[0]] = _reached(*named_file, setting, made, launch)
        stage = _stage(*named_file)
    checked.findings = [placed(document, hit) for rule in LAUNCH_CHECKS
                        for hit in islice(rule(launch, stage), MOST)] + inner  # fmt: skip
    return checked


def _trained(arguments: Arguments, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config that `deepspeed` names, or is."""
    document = arguments.document
    member = document.members.get(("deepspeed",))
    if member is None or (member.node.members is None and member.node.scalar in (None, False, "")):
        tool = tool_of(document.config)
        if tool is not None:
            raise SpecError(
                document.name, f"a training file of {tool} that names no DeepSpeed config",
                "deepspeed: and the name of one", f"zeroplan check ds_config.json --trainer-args {document.name}",
            )  # fmt: skip
        raise SpecError(document.name, "neither distributed_type nor deepspeed", EXPECTED)
    setting = replace(setting, reader=TRAINER, arguments=arguments)
    checked = CheckedFiles(check_arguments(arguments), {document.name: document.text})
    if member.node.members is not None:
        whole = ValueNode(member.start, member.end, members=member.node.members)
        config = Document(document.name, document.text, whole)
        checked.findings += check(config, made(config, setting, None))
    elif (named_file := beside(str(member.node.scalar))) is None:
        raise SpecError(document.name, f"deepspeed {said(member.node.scalar)}, which is not there", "a ds_config.json")
    else:
        inner, checked.texts[named_file[0]] = _reached(*named_file, setting, made)
        checked.findings += inner
    return checked


def _as_fixed(finding: Finding) -> Finding:
    """Edits are those of JSON, and a file that is named as YAML gets none, even where it is named as a config."""
    return replace(finding, edits=()) if finding.file.endswith(YAML) else finding


def _without_edits(finding: Finding, name: str) -> Finding:
    return replace(finding, edits=()) if finding.file == name else finding


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
