"""The findings of the configs that stand in a Python file, and of those that its calls name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, islice
from operator import itemgetter

from zeroplan.check.check import MOST, check, placed
from zeroplan.check.device_map import device_map
from zeroplan.check.document import Beside, Document, ValueNode
from zeroplan.check.finding import ERROR, WARNING, Finding, Hit, named, said
from zeroplan.check.kind import PYTHON
from zeroplan.check.launch_files import imported
from zeroplan.check.named_config import (
    EXPECTED,
    TWICE,
    CheckedFiles,
    Made,
    check_arguments,
    check_json,
    check_releases,
    reached,
)
from zeroplan.check.partly_known import alone, decided
from zeroplan.check.python_calls import ARGUMENT_CLASS, AT_STAGE_3, OF_TRL
from zeroplan.check.python_reader import WORDS as SPOKEN_WORDS
from zeroplan.check.python_reader import (
    Literal,
    PythonConfigs,
    Use,
    arguments_of_calls,
    python_configs,
    refused_by_release,
)
from zeroplan.check.python_strategies import PLUGIN, STRATEGY, as_argument
from zeroplan.check.python_words import WORDS
from zeroplan.check.rules.batch import NO_BATCH
from zeroplan.check.rules.calls import Refused
from zeroplan.check.rules.trainer_release import Stated, arguments_of_the_release, unknown_to_trainer
from zeroplan.check.setting import ANY, DEEPSPEED, LIGHTNING, TRAINER, Setting
from zeroplan.errors import SpecError

OF_JSON = {written: word for word, written in WORDS.items()}
CONSTANTS = re.compile(rf"\b(?:{'|'.join(OF_JSON)})\b")
NOT_OF_PYTHON = (TWICE, NO_BATCH)
"""A dict of Python has each key once, and the batch that it lacks other code may put there."""
ARGUMENT = re.compile(r"^(\w+): ([^\s,]+)$")
"""An argument and its value, as YAML has them."""
NUMBER = re.compile(r"[-+.\deE]+")
HAS_CALLS = re.compile(r"(?:Trainer|Accelerator|tp_model_init)\(")
MENTIONS_STRATEGY = re.compile(rf"^[^#\n]*\b{STRATEGY}\b", re.MULTILINE)
BY_FABRIC = re.compile(rf"^[ \t]*from lightning[._]fabric\S* import [^#\n]*\b{STRATEGY}\b", re.MULTILINE)
OF_PYTORCH_LIGHTNING = "ZP619"
OPTIMIZER = "optimizer."
WHOLE_SINCE = "0.15.0"
SPOKEN = (*SPOKEN_WORDS, "deepspeed")
STAGE_3 = 3
ADDS_OPTIONS, BY_SCRIPT = "add_config_arguments(", "that config, or the script that starts this file with it"
DIVIDES = re.compile(r"HfDeepSpeedConfig|HfTrainerDeepSpeedConfig|\bInit\(")
"""What divides a model as it is built."""


def check_python(
    name: str, text: str, setting: Setting, beside: Beside, made: Made, *, is_imported: bool = False
) -> CheckedFiles:  # fmt: skip
    """Check each config of a file as far as the file decides it. Raises `SpecError` for a file without one."""
    checked, notes = CheckedFiles(texts={name: text}), list[tuple[int, str]]()
    setting = replace(setting, device_map=device_map(name, text, {}))
    written = python_configs(name, text, is_imported=is_imported)
    for content in written.texts:
        checked.findings += check_json(name, content, setting, made)
        notes.append((content.count("\n", 0, content.index("{")) + 1, "a config in a text"))
    if not (written.literals or written.named or written.refused or written.texts):
        return _elsewhere(name, text, written, setting, beside, made)
    checked.findings += refused_by(name, text, written.refused)
    is_lightnings = MENTIONS_STRATEGY.search(text) is not None
    by_lightning = replace(setting, reader=LIGHTNING, reader_is_known=True) if is_lightnings else setting
    for literal in written.literals:
        document = literal.document
        read = _read_by(literal.use, document, setting, by_lightning)
        checked.findings += _of_arguments(literal.use, read) if literal.use is not None else []
        if literal.unknown:
            findings, line = alone(document, literal.unknown, setting, made), document.place(document.root.start).line
            notes.append((line, decided("other code", literal.unknown)))
        else:
            findings = check(document, made(document, read, None))
            checked.findings += [placed(document, hit) for hit in _built_whole(literal, text)]
        checked.findings += [placed(document, hit) for hit in _fractions(literal, text, setting)]
        findings = [_unused(one) for one in findings] if _has_optimizer(literal.use) else findings
        checked.findings += [_as_python(one, literal.call) for one in findings if one.rule not in NOT_OF_PYTHON]
    checked.findings += [one for one in calls_refused(name, text, setting) if one not in checked.findings]
    files = [_near(name, path, beside) for _line, path, _use in written.named]
    for (line, path, use), file in zip(written.named, files, strict=True):
        if file is None:
            notes.append((line, f"{said(path)}, which is not there: not looked at"))
            continue
        read = _read_by(use, None, setting, by_lightning)
        checked.findings += _of_arguments(use, read)
        findings, checked.texts[file[0]] = reached(*file, read, made)
        checked.findings += findings
        notes.append((line, file[0]))
    if not (written.literals or written.refused or written.texts or any(files)):
        line, path, _use = written.named[0]
        raise SpecError(f"{name}:{line}", f"{said(path)}, which is not there", "a ds_config.json")
    if BY_FABRIC.search(text) is not None:  # whose strategy does not mind it (lightning 2.6.6, fabric/strategies)
        checked.findings = [one for one in checked.findings if one.rule != OF_PYTORCH_LIGHTNING]
    checked.notes = [f"{name}:{line}: {note}" for line, note in sorted(notes, key=itemgetter(0))]
    return checked


def _elsewhere(
    name: str, text: str, written: PythonConfigs, setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """Of a file that uses a config which it does not have: what its arguments stop at, and the configs of what it
    imports. Raises `SpecError`.
    """
    checked = CheckedFiles(texts={name: text})
    for use in written.others:
        of_arguments = _of_arguments(use, _read_by(use, None, setting, setting))
        checked.findings += [one for one in of_arguments if one.severity == ERROR]
    for file in imported(name, written.imports, beside) if written.others else ():
        if not any(word in file[1] for word in SPOKEN):
            continue
        with suppress(SpecError):
            inner = check_python(*file, setting, _without_python(beside), made, is_imported=True)
            checked.findings += inner.findings
            checked.texts |= inner.texts
            checked.notes += [f"{name} imports {file[0]}", *inner.notes]
    if len(checked.texts) == 1 and not checked.findings:
        if written.others or ADDS_OPTIONS in text:
            raise SpecError(name, "a Python file that is given its DeepSpeed config by what starts it", BY_SCRIPT)
        raise SpecError(name, "a Python file without a dict that is a DeepSpeed config", EXPECTED)
    return checked


def _near(name: str, path: str, beside: Beside) -> tuple[str, str] | None:
    """A file that one names, as seen from where that is, or from a folder above it."""
    folders = [folder for folder in accumulate(posixpath.dirname(name).split("/"), posixpath.join) if folder]
    names = (path, *(posixpath.join(folder, path) for folder in reversed(folders)))
    return next((file for one in names if (file := beside(one)) is not None), None)


def _without_python(beside: Beside) -> Beside:
    """What an imported file imports is not looked at."""
    return lambda name: None if name.endswith(PYTHON) else beside(name)


def refused_by(name: str, text: str, refused: Sequence[tuple[int, Refused]]) -> list[Finding]:
    """What calls of a file stop at, by its offsets."""
    whole = Document(name, text, ValueNode(0, len(text), members=[]))
    hits = (Hit(one.rule, (), one.message, one.write, one.severity, start) for start, one in refused)
    return [placed(whole, hit) for hit in islice(hits, MOST)]


def options_refused(name: str, text: str, is_option: Callable[[str], bool]) -> list[Finding]:
    """What its calls stop at of the options that a command gives a file; `is_option`: whether a name is one of these.
    Raises `SpecError` for what is no Python.
    """
    if not any(word in text for word in (STRATEGY, PLUGIN)):
        return []
    refused = python_configs(name, text).refused
    return refused_by(name, text, [(start, one) for start, one in refused if any(map(is_option, one.takes))])


def calls_refused(name: str, text: str, setting: Setting) -> list[Finding]:
    """Arguments in its calls that the releases which the project asks for do not have. Raises `SpecError`."""
    releases = Stated(setting.transformers, setting.trl, setting.llama_factory, setting.swift)
    return list(_calls_refused(name, text, setting.version, setting.accelerate, releases))


@lru_cache(maxsize=32)
def _calls_refused(
    name: str, text: str, deepspeed: str, accelerate: str | None, releases: Stated
) -> tuple[Finding, ...]:  # fmt: skip
    """Those arguments, worked out once for a program that several runs of a script start."""
    is_there = ARGUMENT_CLASS.search(text) is not None or OF_TRL.search(text) is not None
    several = arguments_of_calls(name, text)[:MOST] if is_there else []
    hits = ((one, hit) for one in several for rule in (arguments_of_the_release(one, releases),
                                                       unknown_to_trainer(one, releases.transformers))
            for hit in islice(rule, MOST))  # fmt: skip
    stops = [placed(one.document, hit) for one, hit in hits]
    has_calls = HAS_CALLS.search(text) is not None
    of_calls = refused_by_release(name, text, deepspeed, releases.transformers, accelerate) if has_calls else []
    of_arguments = [replace(one, write=ARGUMENT.sub(_as_keyword, one.write)) for one in stops]
    return tuple(of_arguments + refused_by(name, text, of_calls))


def _read_by(use: Use | None, document: Document | None, setting: Setting, unknown: Setting) -> Setting:
    """Who reads a config: the call that is given it tells; `unknown`: the setting where none does."""
    if use is None or use.reader == ANY:
        return unknown
    if use.reader == AT_STAGE_3:
        is_read = document is not None and _stage(document) == STAGE_3
        return replace(setting, reader=DEEPSPEED, reader_is_known=True) if is_read else unknown
    setting = replace(setting, reader=use.reader, reader_is_known=True, pipeline=use.pipeline)
    return replace(setting, arguments=use.arguments) if use.reader == TRAINER else setting


def _of_arguments(use: Use, setting: Setting) -> list[Finding]:
    """What the arguments of a call say, with lines to write as a call has them; where other code decides some of them,
    what their names do.
    """
    if use.arguments is not None:
        findings = check_arguments(use.arguments, setting)
    else:
        findings = [] if use.stated is None else check_releases(use.stated, setting)
    return [replace(one, write=ARGUMENT.sub(_as_keyword, one.write)) for one in findings]


def _as_keyword(match: re.Match[str]) -> str:
    name, value = match.groups()
    is_plain = NUMBER.fullmatch(value) is not None or value.startswith(('"', "'", "["))
    text = value if is_plain else f'"{value}"'
    return f"{name}={OF_JSON.get(value, text)}"


def _has_optimizer(use: Use | None) -> bool:
    return use is not None and use.has_optimizer


def _unused(finding: Finding) -> Finding:
    """DeepSpeed does not look at the config's optimizer where a call is given one."""
    if finding.severity != ERROR or not finding.path.startswith(OPTIMIZER):
        return finding
    message = f"{finding.message}, unless the optimizer of the call takes its place"
    return replace(finding, severity=WARNING, message=message)


def _stage(document: Document) -> object:
    zero = document.config.get("zero_optimization")
    return zero.get("stage") if isinstance(zero, dict) else None


def _built_whole(literal: Literal, text: str) -> Iterator[Hit]:
    """At stage 3 a model that from_pretrained builds before deepspeed.initialize divides it: it asks transformers'
    HfDeepSpeedConfig, and zero.Init, whether to.
    """
    by_engine = literal.use is not None and literal.use.reader == DEEPSPEED
    if by_engine and _stage(literal.document) == STAGE_3 and "from_pretrained(" in text and not DIVIDES.search(text):
        what = ("every rank builds the whole model in from_pretrained before deepspeed.initialize divides it: host "
                "memory for as many copies as there are ranks on a node")  # fmt: skip
        write = "HfDeepSpeedConfig(...) kept alive before from_pretrained"
        yield Hit("ZP806", ("zero_optimization", "stage"), what, write)


def _fractions(literal: Literal, text: str, setting: Setting) -> Iterator[Hit]:
    """What transformers' documents had for a bucket: 0.9 * hidden_size * hidden_size (run: ValidationError)."""
    for start, end, path in () if setting.table.before(WHOLE_SINCE) else literal.shares:
        what = f"{named(' '.join(text[start:end].split()))} is a fraction for most sizes, and DeepSpeed stops at one"
        yield Hit("ZP113", tuple(path.split(".")), what, "int(...) around it", WARNING, start)


def _as_python(finding: Finding, call: str) -> Finding:
    """With the line to write as Python, or a call, has it, and no edit."""
    write = CONSTANTS.sub(lambda match: OF_JSON[match[0]], finding.write)
    return replace(finding, write=as_argument(write, finding.path, call) if call else write, edits=())
