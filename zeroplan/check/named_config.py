"""The findings of a ds_config that is JSON, as another file names it or by itself, and what a check comes to."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from zeroplan.catalog.trainers.example_configs import is_example
from zeroplan.catalog.trainers.swift_configs import is_own
from zeroplan.check.accelerate_config import AccelerateConfig
from zeroplan.check.arguments import Arguments
from zeroplan.check.check import MOST, UNREADABLE, check, check_text, placed
from zeroplan.check.document import Document, ValueNode
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Edit, Finding, Hit, named
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import has_no_key, is_others, not_a_config, refuse_text
from zeroplan.check.proposed import tried
from zeroplan.check.python_words import PythonWord, python_words, with_words_of_json
from zeroplan.check.rules import RULES
from zeroplan.check.rules.contradictions import refused_together
from zeroplan.check.rules.refused_files import (
    REFUSED_ALONE,
    REFUSED_BESIDE_DEEPSPEED,
    bare_bf16,
    groups_of_answers,
    vllm_of_swift,
)
from zeroplan.check.rules.trainer import ARGUMENT_CHECKS
from zeroplan.check.rules.trainer_release import Stated, arguments_of_the_release
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.read import refuse_models

Made = Callable[[Document, Setting, AccelerateConfig | None], Setting]
"""The setting of one config, which may follow from what it says."""
EXPECTED = "a ds_config, an Accelerate config or TrainingArguments with a deepspeed in them"
TWICE = "ZP103"


@dataclass
class CheckedFiles:
    """Findings, and the texts of the files that they are in."""

    findings: list[Finding] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What a file was taken for, where that is not plain."""


def check_json(
    name: str, text: str, setting: Setting, made: Made, accelerate: AccelerateConfig | None = None
) -> list[Finding]:
    """What is found, and of what it proposes that which does. Raises `SpecError` for a model's config.json."""
    findings = findings_of(name, text, setting, made, accelerate)
    if not any(one.edits or one.write for one in findings):
        return findings
    try:
        document = read_json(name, text)
    except NotReadableError:
        return findings
    return tried(document, findings, lambda changed: _again(name, changed, setting, made, accelerate))


def _again(name: str, text: str, setting: Setting, made: Made, accelerate: AccelerateConfig | None) -> list[Finding]:
    """What is found in a changed text, but for what its ledger says: for whom it is may change with it."""
    try:
        document = read_json(name, text)
    except NotReadableError:
        return check_text(name, text, setting)
    return check(document, replace(made(document, setting, accelerate), planned=None))


def findings_of(
    name: str, text: str, setting: Setting, made: Made, accelerate: AccelerateConfig | None = None
) -> list[Finding]:
    """What is found, with everything that it proposes. Raises `SpecError` for a model's config.json."""
    findings = _findings_as_written(name, text, setting, made, accelerate)
    words = python_words(text)[:MOST]
    if not words:
        return findings
    severity = ERROR if any(one.severity == ERROR for one in findings) else WARNING
    meant = _findings_as_written(name, with_words_of_json(text, words), setting, made, accelerate)
    document = Document(name, text, ValueNode(0, len(text), members=[]))
    return [*(placed(document, _of_python(word, severity)) for word in words), *meant]


def _of_python(word: PythonWord, severity: str) -> Hit:
    what = f"{word.word} is Python's, and no value of JSON"
    edit = Edit(word.start, word.start + len(word.word), word.write)
    return Hit("ZP102", (), what, word.write, severity, word.start, (edit,))


def _findings_as_written(
    name: str, text: str, setting: Setting, made: Made, accelerate: AccelerateConfig | None = None
) -> list[Finding]:
    try:
        document = read_json(name, text)
    except NotReadableError:
        refuse_text(name, text, EXPECTED)
        return check_text(name, text, setting)
    refuse_models(document.config, name)
    if has_no_key(document.config) or is_others(document.config):
        raise not_a_config(document, EXPECTED)
    return check(document, made(document, setting, accelerate))


def reached(
    name: str, text: str, setting: Setting, made: Made, accelerate: AccelerateConfig | None = None
) -> tuple[list[Finding], str]:
    """The findings of a file that another one names, and its text. Of what is no config nothing is quoted, and there is
    no text: whoever writes a YAML may name any file, and a log may be read by others than that file. One that lies in a
    tool's package is nobody's to change, and gets no advice.
    """
    if text.lstrip().startswith("{"):
        with suppress(NotReadableError):
            read_json(name, text)
            findings = check_json(name, text, setting, made, accelerate)
            is_shipped = is_own(name) or is_example(name)
            return [one for one in findings if not (is_shipped and one.severity == ADVICE)], text
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


def check_arguments(arguments: Arguments, setting: Setting) -> list[Finding]:
    """What TrainingArguments say that no config is needed to see."""
    rules = (*ARGUMENT_CHECKS, *REFUSED_BESIDE_DEEPSPEED)
    hits = [hit for rule in rules for hit in islice(rule(arguments), MOST)]
    return [placed(arguments.document, hit) for hit in hits] + check_arguments_alone(arguments, setting)


def check_arguments_alone(arguments: Arguments, setting: Setting) -> list[Finding]:
    """What they say that is so without DeepSpeed too."""
    hits = [hit for rule in REFUSED_ALONE for hit in islice(rule(arguments), MOST)]
    hits += groups_of_answers(arguments, setting.gpus, setting.trl)
    hits += refused_together(arguments, setting.llama_factory)
    return [placed(arguments.document, hit) for hit in hits] + check_names(arguments, setting)


def check_names(arguments: Arguments, setting: Setting) -> list[Finding]:
    """What the names of arguments are enough for."""
    hits = [*vllm_of_swift(arguments, setting.swift), *bare_bf16(arguments, setting.trl)]
    return [placed(arguments.document, hit) for hit in hits] + check_releases(arguments, setting)


def check_releases(arguments: Arguments, setting: Setting) -> list[Finding]:
    """What the releases which the project asks for do not have of them."""
    releases = Stated(setting.transformers, setting.trl, setting.llama_factory, setting.swift)
    hits = islice(arguments_of_the_release(arguments, releases), MOST)
    return [placed(arguments.document, hit) for hit in hits]


def twice(document: Document, does: str, severity: str) -> list[Finding]:
    """Keys that stand twice, and what the reader of the file does."""
    several = ((path, member) for path, _first, member in document.repeated())
    hits = (Hit(TWICE, path, f"{named(one.name)} is there twice: {does}", "delete one of them", severity, one.start)
            for path, one in several)  # fmt: skip
    return [placed(document, hit) for hit in islice(hits, MOST)]
