"""The findings of a file by its kind: a ds_config, alone or in another file, Accelerate's config, TrainingArguments."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from zeroplan.check.accelerate_config import AccelerateConfig
from zeroplan.check.accelerate_file import Overrides, check_accelerate_config
from zeroplan.check.arguments import YAML, Arguments
from zeroplan.check.check import UNREADABLE, check
from zeroplan.check.document import Beside, Document, NotYamlError
from zeroplan.check.finding import WARNING, Finding, said
from zeroplan.check.gpt_neox import OWN, RELEASE, handed_on, is_neox, trains_pipeline
from zeroplan.check.inner import Inner, inner, named_in
from zeroplan.check.interpolated import known_of
from zeroplan.check.json_reader import NotReadableError
from zeroplan.check.kind import (
    DEEPSPEED,
    NEOX,
    TEMPLATE,
    Kind,
    a_template,
    block,
    is_notebook,
    is_script,
    is_yaml,
    kind_of,
    not_a_config,
    read_document,
)
from zeroplan.check.named_config import EXPECTED, CheckedFiles, Made, check_json, reached
from zeroplan.check.partly_known import of_interpolated
from zeroplan.check.python_reader import is_python
from zeroplan.check.rules import RULES
from zeroplan.check.rules.batch import NO_BATCH
from zeroplan.check.setting import DEEPSPEED as RAW
from zeroplan.check.setting import TRAINER, Setting, guessed
from zeroplan.check.training_file import check_training
from zeroplan.errors import SpecError

if TYPE_CHECKING:
    from zeroplan.check.yaml_strategies import Strategy

LOG = re.compile(
    r"^(?:\d+: )?\[\d{4}-\d\d-\d\d [\d:,]+\] \[[A-Z]+\]|^[IWE]\d{4} \d\d:\d\d:\d\d"
    r"|^Traceback \(most recent call last\):|^(?:\d+: )?\[(?:default|rank)\d+\]:|^\[(?:INFO|WARNING|ERROR)\|\d{4}-"
    r"|^\d\d-[A-Z][a-z]{2}-\d\d \d\d:\d\d:\d\d - |^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S* .*\b(?:INFO|WARNING|ERROR)\b"
    r"|^\{'(?:train_)?loss': ",
    re.MULTILINE,
)
"""How a line of a log begins: of DeepSpeed, torchrun, Python, a rank (also as `srun --label` has it), a logger, the
Trainer.
"""
LOGS = (".log", ".out", ".err")
HYDRA = re.compile(r"^override\s+|@.*$")
"""What stands around a group in `defaults`."""
OF_DEEPSPEED = re.compile(r"^\s*(?:deepspeed\w*|distributed_type|zero_optimization)\s*:", re.MULTILINE)
"""A key of YAML that has, or names, a config."""
EARLY = 50_000
"""Letters of a log that such a line is looked for in."""
PUT_IN = {NO_BATCH: "puts nothing in", "ZP309": "puts nothing in", "ZP602": "does not take it out"}
"""Rules about keys that programs put into a block of their file, or build their own optimizer of (CogVideo's sat)."""
WORDS = (
    "base_model", "model", "model_name_or_path", "output_dir", "deepspeed", "deepspeed_config", "distributed_type",
    "compute_environment",
)  # fmt: skip
"""One of them is in every file that is no ds_config and has, or names, one."""


def check_config_file(
    name: str, text: str, setting: Setting, beside: Beside, made: Made, overrides: Overrides = ()
) -> CheckedFiles:  # fmt: skip
    """Raises `SpecError` for what is no config at all, and for what is another's file."""
    is_log = name.lower().endswith(LOGS) or LOG.search(text[:EARLY]) is not None
    if is_log and text.strip() and (not text.lstrip().startswith("{") or text.startswith("{'")):
        raise SpecError(name, "a log", EXPECTED, f"zeroplan observe {name} --params ... --stage ...")
    if is_yaml(name, text):
        try:
            document = read_document(name, text, EXPECTED)
        except NotYamlError as error:
            if TEMPLATE.search(text) is not None:
                raise a_template(name, EXPECTED) from error
            if not name.lower().endswith(YAML) or OF_DEEPSPEED.search(text) is None:
                raise
            return CheckedFiles([_unreadable(name, error)], {name: text})
    elif (other := other_json(name, text)) is None:
        return CheckedFiles(check_json(name, text, setting, made), {name: text})
    else:
        document = other
    checked = _of_kind(document, setting, beside, made, overrides)
    return replace(checked, findings=[_without_edits(one, name) for one in checked.findings])


def _unreadable(name: str, error: NotYamlError) -> Finding:
    rule = RULES[UNREADABLE]
    message = f"{error.found}: whoever reads it stops"
    line, column = error.position
    return Finding(rule.id, rule.severity, name, line, column, column + 1, "", message, "", rule.link)


def is_other(name: str, text: str) -> bool:
    """Whether it is anything but a ds_config that is JSON, which alone is mended."""
    written = is_script(name, text) or is_python(name, text) or is_yaml(name, text) or is_notebook(name)
    return written or other_json(name, text) is not None


def other_json(name: str, text: str) -> Document | None:
    """The file, where it is no ds_config, and has or names one; a file that is named as one may be anything."""
    if not any(f'"{word}"' in text for word in (*WORDS, *NEOX)):
        return None
    try:
        document = read_document(name, text, EXPECTED)
    except NotReadableError:
        return None
    kind = kind_of(document)
    has_part = DEEPSPEED in document.config or is_neox(document.config) or inner(document) is not None
    is_nothing = kind is Kind.OTHER and not has_part
    return None if kind is Kind.CONFIG or is_nothing else document


def _of_kind(
    document: Document, setting: Setting, beside: Beside, made: Made, overrides: Overrides = ()
) -> CheckedFiles:  # fmt: skip
    kind, texts = kind_of(document), {document.name: document.text}
    if kind is Kind.ACCELERATE:
        return check_accelerate_config(AccelerateConfig(document, dict(overrides)), setting, beside, made)
    if kind is Kind.ARGUMENTS:
        named_one = named_in(document) if DEEPSPEED not in document.config else None
        by_own_key = named_one is not None and beside(named_one[1]) is not None
        return (_of_named(document, named_one, setting, beside, made) if by_own_key and named_one is not None
                else check_training(Arguments(document), setting, beside, made))  # fmt: skip
    if kind is Kind.OTHER:
        return _of_another(document, setting, beside, made)
    if kind is Kind.BLOCK:
        return _of_block(block(document), DEEPSPEED, setting, made)
    known = known_of(document)
    config = known.document
    if known.unknown:
        findings, note = of_interpolated(known, setting, made)
        return CheckedFiles(findings, texts, [note])
    return CheckedFiles(check(config, made(config, setting, None)), texts)


def _of_another(document: Document, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """A file of another program, which may have a part of it. Raises `OtherKindError`."""
    if is_neox(document.config) and (config := handed_on(document)).config:
        return _of_neox(config, trains_pipeline(document.config), setting, made)
    if (part := inner(document)) is not None:
        return _of_part(part, setting, beside, made)
    if (strategy := strategy_of(document)) is not None:
        from zeroplan.check.yaml_strategies import check_strategy  # where there is such a file

        return check_strategy(document, strategy, setting, beside, made)
    if (named_one := named_in(document)) is not None:
        return _of_named(document, named_one, setting, beside, made)
    if (checked := _of_composed(document, setting, beside, made)) is not None:
        return checked
    raise not_a_config(document, EXPECTED)


def _of_neox(config: Document, pipeline: bool, setting: Setting, made: Made) -> CheckedFiles:
    setting = replace(setting, reader=RAW, reader_is_known=True, pipeline=pipeline, gpus=None)
    setting = made(config, setting, None)
    if not setting.version_is_stated:
        setting = replace(setting, version=RELEASE)
    note = f"{config.name}: what GPT-NeoX hands to DeepSpeed, checked as DeepSpeed {setting.version}"
    findings = [one for one in check(config, setting)
                if one.path not in OWN and one.rule not in PUT_IN]  # fmt: skip
    return CheckedFiles(findings, {config.name: config.text}, [note])


def _of_named(
    document: Document, stated: tuple[str, str], setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """The config that a program's file names by a key of its own."""
    path, name = stated
    if (file := beside(name)) is None:
        raise SpecError(document.name, f"{path}: {said(name)}, which is not there", "a ds_config.json")
    findings, text = reached(*file, setting, made)
    texts = {document.name: document.text, file[0]: text}
    return CheckedFiles(findings, texts, [f"{document.name}: its {path} is {file[0]}"])


def _of_composed(document: Document, setting: Setting, beside: Beside, made: Made) -> CheckedFiles | None:
    """The first file with a config of those that Hydra puts together: strategy/deepspeed.yaml, of `defaults: [strategy:
    deepspeed]`.
    """
    stated = document.config.get("defaults")
    entries = [entry for entry in stated if isinstance(entry, dict)] if isinstance(stated, list) else []
    for group, name in ((group, name) for entry in entries for group, name in entry.items() if isinstance(name, str)):
        folder = HYDRA.sub("", str(group)).strip("/")
        file = beside(f"{folder}/{name}.yaml")
        with suppress(SpecError):
            if file is not None and _has_config(read_document(*file, EXPECTED)):
                checked = check_config_file(*file, setting, beside, made)
                checked.texts[document.name] = document.text
                checked.notes.insert(0, f"{document.name}: its defaults name {file[0]}")
                return checked
    return None


def _has_config(document: Document) -> bool:
    """Whether it has or names a config itself."""
    has_part = inner(document) is not None or strategy_of(document) is not None or named_in(document) is not None
    return has_part or kind_of(document) is Kind.CONFIG


def strategy_of(document: Document) -> Strategy | None:
    """Lightning's or Accelerate's class that a file states."""
    if DEEPSPEED not in document.text.lower():
        return None
    from zeroplan.check.yaml_strategies import strategy_in  # where there is such a file

    return strategy_in(document)


def _of_part(part: Inner, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """A section of another program's file."""
    if part.is_config:
        return _of_block(part.document, part.path, setting, made)
    document = part.document
    checked = check_training(Arguments(document), setting, beside, made)
    checked.notes.append(f"{document.name}: TrainingArguments under {part.path}:")
    return checked


def _of_block(document: Document, path: str, setting: Setting, made: Made) -> CheckedFiles:
    """A ds_config in another program's file."""
    known, texts = known_of(document, by_another=True), {document.name: document.text}
    config = known.document
    if known.unknown:
        findings, note = of_interpolated(known, setting, made)
        return CheckedFiles(findings, texts, [note])
    reader = guessed(config.config)
    setting = made(config, replace(setting, reader=reader, reader_is_known=True), None)
    how = {RAW: ", checked as DeepSpeed itself reads it", TRAINER: ', whose "auto" the Trainer fills in'}
    note = f"{document.name}: a ds_config under {path}:{how.get(setting.reader, '')}"
    return CheckedFiles([_left_to_others(one) for one in check(config, setting)], texts, [note])


def _left_to_others(finding: Finding) -> Finding:
    """The program whose file it is may put in the batch and the precision before DeepSpeed reads a block of it, and
    take the optimizer out.
    """
    if finding.rule not in PUT_IN:
        return finding
    return replace(finding, severity=WARNING, message=f"{finding.message}, if the program {PUT_IN[finding.rule]}")


def _without_edits(finding: Finding, name: str) -> Finding:
    """Edits are those of a ds_config that is JSON, and a file that names one, or is YAML, gets none."""
    return replace(finding, edits=()) if finding.file == name or finding.file.endswith(YAML) else finding


