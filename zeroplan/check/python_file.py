"""The findings of the configs that stand in a Python file, and of those that its calls name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from zeroplan.check.check import check, placed
from zeroplan.check.document import Document
from zeroplan.check.finding import Finding, Hit, said
from zeroplan.check.named_config import EXPECTED, TWICE, Beside, CheckedFiles, Made, check_arguments, reached
from zeroplan.check.partly_known import alone, decided
from zeroplan.check.python_calls import AT_STAGE_3
from zeroplan.check.python_reader import Given, Literal, python_configs
from zeroplan.check.setting import DEEPSPEED, LIGHTNING, TRAINER, Setting
from zeroplan.errors import SpecError

CONSTANTS = re.compile(r"\b(?:true|false|null)\b")
NOT_OF_PYTHON = (TWICE, "ZP203")
"""A dict of Python has each key once, and the batch that it lacks other code may put there."""
LIGHTNINGS = "DeepSpeedStrategy"
"""What Lightning's users give a config to."""
LINE = re.compile(r":(\d+)")
STAGE_3 = 3
DIVIDES = re.compile(r"HfDeepSpeedConfig|HfTrainerDeepSpeedConfig|\bInit\(")
"""What divides a model as it is built."""


def check_python(name: str, text: str, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """Of a config that other code fills in, what names and values alone say. Raises `SpecError` for a file without."""
    checked = CheckedFiles(texts={name: text})
    written = python_configs(name, text)
    if not written.literals and not written.named:
        raise SpecError(name, "a Python file without a dict that is a DeepSpeed config", EXPECTED)
    by_lightning = replace(setting, reader=LIGHTNING, reader_is_known=True) if LIGHTNINGS in text else setting
    for literal in written.literals:
        document = literal.document
        if literal.unknown:
            findings, line = alone(document, literal.unknown, setting, made), document.place(document.root.start).line
            checked.notes.append(f"{name}:{line}: {decided('other code', literal.unknown)}")
        else:
            read = _read_by(literal.given, document, setting, by_lightning)
            findings = check(document, made(document, read, None))
            checked.findings += check_arguments(read.arguments) if read.arguments is not None else []
            checked.findings += [placed(document, hit) for hit in _built_whole(literal, text)]
        checked.findings += [_as_python(one) for one in findings if one.rule not in NOT_OF_PYTHON]
    for place, path, given in written.named:
        if (file := beside(path)) is None:
            checked.notes.append(f"{place}: {said(path)}, which is not there: not looked at")
            continue
        findings, checked.texts[file[0]] = reached(*file, _read_by(given, None, setting, by_lightning), made)
        checked.findings += findings
        checked.notes.append(f"{place}: {file[0]}")
    checked.notes.sort(key=lambda note: int(LINE.match(note.removeprefix(name))[1]))  # type: ignore[index]
    if not written.literals and len(checked.texts) == 1:
        place, path, _given = written.named[0]
        raise SpecError(place, f"{said(path)}, which is not there", "a ds_config.json")
    return checked


def _read_by(given: Given | None, document: Document | None, setting: Setting, unknown: Setting) -> Setting:
    """Who reads a config: the call that is given it tells; `unknown`: the setting where none does."""
    if given is None:
        return unknown
    if given.reader == AT_STAGE_3:
        is_read = document is not None and _stage(document) == STAGE_3
        return replace(setting, reader=DEEPSPEED, reader_is_known=True) if is_read else unknown
    setting = replace(setting, reader=given.reader, reader_is_known=True)
    return replace(setting, arguments=given.arguments) if given.reader == TRAINER else setting


def _stage(document: Document) -> object:
    zero = document.config.get("zero_optimization")
    return zero.get("stage") if isinstance(zero, dict) else None


def _built_whole(literal: Literal, text: str) -> Iterator[Hit]:
    """At stage 3 a model that from_pretrained builds before deepspeed.initialize divides it: it asks transformers'
    HfDeepSpeedConfig, and zero.Init, whether to.
    """
    by_engine = literal.given is not None and literal.given.reader == DEEPSPEED
    if by_engine and _stage(literal.document) == STAGE_3 and "from_pretrained(" in text and not DIVIDES.search(text):
        what = ("every rank builds the whole model in from_pretrained before deepspeed.initialize divides it: host "
                "memory for as many copies as there are ranks on a node")  # fmt: skip
        write = "HfDeepSpeedConfig(...) kept alive before from_pretrained"
        yield Hit("ZP806", ("zero_optimization", "stage"), what, write)


def _as_python(finding: Finding) -> Finding:
    """With the line to write as Python has it, and no edit."""
    write = CONSTANTS.sub(lambda match: {"true": "True", "false": "False", "null": "None"}[match[0]], finding.write)
    return replace(finding, write=write, edits=())
