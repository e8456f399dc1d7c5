"""1xx: whether the file can be read, and by whom."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zeroplan.check.arguments import YAML
from zeroplan.check.edit import deleted
from zeroplan.check.finding import ERROR, WARNING, Hit, named, said
from zeroplan.check.json_reader import BRACES, COMMENTS, MISSING, QUOTES, TRAILING, UNQUOTED
from zeroplan.check.punctuation import as_json
from zeroplan.check.rule import Rule, example
from zeroplan.check.setting import DEEPSPEED
from zeroplan.check.subject import Subject

PLACEHOLDER = re.compile(
    r"\$\{[^}]*\}.*|\{\{.*\}\}|<[A-Za-z_ -]+>|"
    r"(?:CONFIG|ZERO|GLOBAL|PRESCALE|TRAIN|MICRO|BATCH|LR|MIN|MAX|LOG|GRAD|OFFLOAD|HIDDEN|SEQ)_[A-Z0-9_]+,?"
)  # fmt: skip

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP101", ERROR, "The file is no JSON, or no YAML", "runtime/config.py:DeepSpeedConfig.__init__, hjson.load",
        example('{"train_batch_size": }'), example('{"train_batch_size": 8, "bf16": {"enabled": true}}'),
    ),
    Rule(
        "ZP102", WARNING, "Comments, trailing commas and other liberties of hjson",
        "runtime/config.py:DeepSpeedConfig.__init__ reads hjson; transformers, accelerate and Lightning read JSON",
        example('{"train_batch_size": 8, // per step\n "bf16": {"enabled": true}}'),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}}'),
    ),
    Rule(
        "ZP103", ERROR, "A key that is there twice", "runtime/config_utils.py:dict_raise_error_on_duplicate_keys",
        example('{"train_batch_size": 8, "train_batch_size": 8, "bf16": {"enabled": true}}'),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}}'),
    ),
    Rule(
        "ZP104", WARNING, "A placeholder of a template", "29 of 299 public files are templates",
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "steps_per_print": "${LOG_INTERVAL}"}'),
        example('{"train_batch_size": 8, "bf16": {"enabled": true}, "steps_per_print": 10}'),
    ),
)  # fmt: skip


MENDED = {
    COMMENTS: "delete it", TRAILING: "delete the comma", MISSING: "a comma between them",
    QUOTES: 'double quotes: "..."', UNQUOTED: 'the text in quotes: "..."',
    BRACES: "{ before the first key, } behind the last value",
}  # fmt: skip
"""What to write in place of each."""


def more_than_json(subject: Subject) -> Iterator[Hit]:
    """The first of each kind."""
    document, lenient = subject.document, subject.setting.reader == DEEPSPEED
    for what, offsets in document.noted.items():
        more = f" ({len(offsets)} times in this file)" if len(offsets) > 1 else ""
        reads = "DeepSpeed reads it, json.load does not" if lenient else "json.load stops here"
        yield Hit("ZP102", (), f"{what} is not JSON: {reads}{more}", MENDED[what],
                  WARNING if lenient else ERROR, offsets[0], as_json(document, what))  # fmt: skip


def repeated_keys(subject: Subject) -> Iterator[Hit]:
    """DeepSpeed's own reader refuses them; json.load, which others use, keeps the last, and so does PyYAML."""
    document = subject.document
    is_yaml = document.name.lower().endswith(YAML) or not document.text.lstrip().startswith("{")
    by = "yaml.safe_load" if is_yaml else "json.load"
    lenient = subject.setting.reader != DEEPSPEED or is_yaml
    for path, first, member in document.repeated():
        does = f"{by} keeps the last one without a word" if lenient else "DeepSpeed refuses that"
        same = first.node.plain() == member.node.plain() and repr(first.node.plain()) == repr(member.node.plain())
        yield Hit("ZP103", path, f"{named(member.name)} is there twice: {does}", "delete one of them",
                  WARNING if lenient else ERROR, member.start,
                  deleted(document, path, member.start) if same else ())  # fmt: skip


def is_placeholder(value: object) -> bool:
    return isinstance(value, str) and PLACEHOLDER.fullmatch(value.strip()) is not None


def placeholders(subject: Subject) -> Iterator[Hit]:
    for path, member in subject.document.walk():
        if is_placeholder(member.node.scalar):
            yield Hit("ZP104", path, f"{said(member.node.scalar)} was to be replaced before the run",
                      f'"{named(member.name)}": the value')  # fmt: skip


CHECKS = (more_than_json, repeated_keys, placeholders)
