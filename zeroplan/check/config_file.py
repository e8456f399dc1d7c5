"""The ds_config of a file, for every command: JSON and hjson as DeepSpeed reads them, or what a YAML makes of it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.catalog.files import LARGEST_CONFIG, beside, place_of, read_text
from zeroplan.catalog.trainers.example_configs import example_config
from zeroplan.catalog.trainers.swift_configs import own_config, with_keys
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, tool_of
from zeroplan.check.arguments import YAML
from zeroplan.check.document import Document, ValueNode
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import (
    DEEPSPEED,
    Kind,
    block,
    is_others,
    is_script,
    is_yaml,
    kind_of,
    not_a_config,
    read_document,
)
from zeroplan.deepspeed.keys import key
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.names import COMMENTS
from zeroplan.deepspeed.read import refuse_models
from zeroplan.errors import SpecError, shortened, shown

if TYPE_CHECKING:
    from zeroplan.catalog.trainers.file import TrainerFile

EXPECTED = "a ds_config.json"
IN_YAML = "a ds_config, an Accelerate config or TrainingArguments with a deepspeed in them"


class ConfigFile(NamedTuple):
    """A ds_config, and what errors call its file."""

    content: dict[str, Any]
    place: str
    notes: tuple[str, ...] = ()
    """What somebody who reads the file makes of it otherwise."""
    file: TrainerFile | None = None
    """The training file of another tool that names it, or is it."""
    is_stated: bool = True
    """Whether there is a ds_config: such a file may name none."""


def read_config_file(path: str) -> ConfigFile:
    """'-' is standard input. Raises `SpecError` for what is no object, or says a key twice."""
    text = read_text(path, EXPECTED, LARGEST_CONFIG)
    place = place_of(path)
    if is_script(path, text):
        raise _of_script(place, text)
    document = read_document(place, text, IN_YAML) if is_yaml(path, text) else _read(place, text)
    kind = kind_of(document)
    if kind is Kind.ACCELERATE:
        return _launched(path, document)
    if kind is Kind.ARGUMENTS:
        return _named(path, document) if tool_of(document.config) is None else _trained(path, document)
    if kind is Kind.BLOCK:
        return _config(block(document))
    if kind is Kind.OTHER and (DEEPSPEED in document.config or is_yaml(path, text) or is_others(document.config)):
        raise not_a_config(document, IN_YAML)
    return _config(document)


def _of_script(place: str, text: str) -> SpecError:
    """A script may start several runs, and is checked: what is counted is one config."""
    from zeroplan.check.launcher import launches

    named = [one.config.word.text for one in launches(place, text) if one.config.word and one.config.word.text]
    return SpecError(place, "a shell script", IN_YAML, f"--config {named[0]}" if named else "")


def _config(document: Document) -> ConfigFile:
    names = [member.name for member in document.root.members or ()]
    if names and not any(key(name) or name in REMOVED_KEYS or name.startswith(COMMENTS) for name in names):
        refuse_models(document.config, document.name)
        raise SpecError(document.name, f"no key that DeepSpeed knows ({shown(names[0])})", EXPECTED)
    _check_once(document)
    _check_numbers(document, document.root)
    what = next((remark.what for remark in document.remarks), "")
    note = f"{document.name} has {what}: DeepSpeed reads it, and json.load of the Trainer and Accelerate stops"
    return ConfigFile(document.config, document.name, (note,) if what else ())


def _read(place: str, text: str) -> Document:
    if not text.strip():
        raise SpecError(place, "an empty file", EXPECTED)
    if "\0" in text:
        raise SpecError(place, "text that is not JSON (a NUL byte)", EXPECTED)
    if text.lstrip().startswith("["):
        raise SpecError(place, "a JSON list", f"{EXPECTED}: an object in {{}}")
    try:
        document = read_json(place, text)
    except NotReadableError as error:
        line, column = _place(text, error.offset)
        raise SpecError(f"{place}:{line}:{column}", f"text that is not JSON ({error})", EXPECTED) from error
    return document


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def _launched(path: str, document: Document) -> ConfigFile:
    """The config that a file for accelerate launch states or names."""
    from zeroplan.check.accelerate_config import AccelerateConfig, inline

    accelerate = AccelerateConfig(document)
    if not accelerate.is_deepspeed or not accelerate.fields:
        raise SpecError(document.name, "an Accelerate config without deepspeed_config", IN_YAML)
    if accelerate.config_file:
        return _beside(path, document.name, accelerate.config_file)
    return ConfigFile(inline(accelerate).config, document.name)


def _trained(path: str, document: Document) -> ConfigFile:
    """The config that a training file of another tool states or names, with what that file says of the job."""
    file = trainer_file(document)
    if document.config.get("deepspeed") in (None, False, ""):
        return ConfigFile({}, document.name, file=file, is_stated=False)
    named = _named(path, document)
    puts = {} if file is None else file.stated.puts
    return named._replace(file=file, content=with_keys(named.content, puts))


def trainer_file(document: Document) -> TrainerFile | None:
    """What a training file says; None for what is none. Raises `SpecError`."""
    from zeroplan.catalog.trainers.file import read_trainer_file  # where there is such a file

    file = read_trainer_file(document.config, document.name)
    if file is not None and file.tool == LLAMA_FACTORY:  # OmegaConf reads it; PyYAML takes the last
        _check_once(document, "each key once, as LLaMA-Factory reads it")
    return file


def _named(path: str, document: Document) -> ConfigFile:
    """The config that `deepspeed` names, or is."""
    member = document.members[DEEPSPEED,]
    if member.node.members is not None:
        return _config(block(document))
    return _beside(path, document.name, member.node.scalar, tool_of(document.config))


def _beside(path: str, place: str, named: Any, tool: str | None = None) -> ConfigFile:
    """A file as seen from the one that names it, or from here, which is what Accelerate does; or the JSON of a text."""
    if isinstance(named, str) and named.lstrip().startswith("{"):
        return _config(_read(f"deepspeed of {place}", named))
    seen = beside(path, named) if isinstance(named, str) else ()
    file = next(filter(os.path.isfile, seen), None)
    if file is None and (own := own_config(named) or example_config(named, tool)) is not None:
        return _config(read_json(*own))
    if file is None or file.endswith(YAML):
        raise SpecError(place, f"{shown(named)} for the ds_config", "the name of a ds_config.json that is there")
    return read_config_file(file)


def _check_once(
    document: Document, expected: str = "each key once (DeepSpeed refuses it; json.load of the Trainer and Accelerate "
    "takes the last)",
) -> None:  # fmt: skip
    for path, _first, member in document.repeated():
        line, column = document.place(member.start)
        raise SpecError(
            f"{document.name}:{line}:{column}", f"the key {shown('.'.join(path))} twice", expected,
        )  # fmt: skip


def _check_numbers(document: Document, node: ValueNode) -> None:
    for number in _floats(node):
        if not math.isfinite(number.scalar):
            line, column = document.place(number.start)
            found = shortened(document.text[number.start : number.end])
            raise SpecError(f"{document.name}:{line}:{column}", found, "a finite number (JSON has no NaN or Infinity)")


def _floats(node: ValueNode) -> Iterator[ValueNode]:
    if isinstance(node.scalar, float):
        yield node
    for member in node.members or ():
        yield from _floats(member.node)
    for item in node.items or ():
        yield from _floats(item)
