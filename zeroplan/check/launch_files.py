"""Files that a command of a launch script names: training files, configs, scripts in Python, what it sources."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

from zeroplan.catalog.trainers.tools import tool_of
from zeroplan.catalog.trainers.trl_configs import own_accelerate_config
from zeroplan.check.accelerate_config import AccelerateConfig, is_accelerate_config
from zeroplan.check.arguments import Arguments, has_own
from zeroplan.check.document import Beside, Document
from zeroplan.check.inner import inner, named_in
from zeroplan.check.json_reader import NotReadableError
from zeroplan.check.kind import JSON, PYTHON, Kind, is_data, kind_of, read_document
from zeroplan.check.launch_options import options_of
from zeroplan.check.python_names import imported_files
from zeroplan.check.python_nodes import parsed
from zeroplan.check.script_arguments import reads_a_file
from zeroplan.check.shell_variables import Word
from zeroplan.errors import SpecError

MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
MOST_IMPORTED = 40
OF_FILES = ("llamafactory-cli", "axolotl", "axolotl.cli.train")
"""What takes a training file and names no config beside it."""


def read_beside(name: str | None, beside: Beside) -> tuple[str, str] | None:
    """A file that is there and can be read."""
    if not name:
        return None
    with suppress(SpecError):
        return beside(name)
    return None


def sourced(name: str, beside: Beside) -> str | None:
    """What a script sources below its own folder: messages repeat values, and another place may have secrets."""
    if posixpath.isabs(name) or posixpath.normpath(name).startswith(".."):
        return None
    file = read_beside(name, beside)
    return None if file is None else file[1]


def code_of(script: Word | None, beside: Beside) -> tuple[str, str] | None:
    """Name and text of a script in Python, or of a module, that is there."""
    return read_beside(file_of(script), beside) if script is not None else None


def file_of(script: Word | None) -> str:
    """The file of a script, or of a module: training/sft.py, of training.sft; "" where it is not known."""
    name = "" if script is None else script.text or ""
    is_module = MODULE.fullmatch(name) is not None and not name.endswith(PYTHON)
    return f"{name.replace('.', '/')}{PYTHON}" if is_module else name if name.endswith(PYTHON) else ""


def document_of(name: str | None, beside: Beside) -> Document | None:
    file = read_beside(name, beside)
    if file is None:
        return None
    with suppress(SpecError, NotReadableError):
        return read_document(*file, "a mapping")
    return None


def named_document(word: Word | None, beside: Beside) -> Document | None:
    """A training file, or the file that a script's own --config names, as scripts have it that are built on TRL's
    parser, or call their ds_config so.
    """
    return document_of(word.text, beside) if word is not None and is_data(word.text or "") else None


def with_imported(script: tuple[str, str], beside: Beside) -> Iterator[tuple[str, str]]:
    """Name and text of a script, and of each file of its project that it imports."""
    name, text = script
    yield script
    tree = parsed(text)
    yield from imported(name, [] if tree is None else imported_files(tree), beside)


def imported(name: str, files: Sequence[str], beside: Beside) -> Iterator[tuple[str, str]]:
    """Files of a project that a script imports, seen from its folder, or else from where it runs."""
    folder = posixpath.dirname(name)
    for file in files[:MOST_IMPORTED]:
        near = posixpath.normpath(posixpath.join(folder, file))
        if (there := read_beside(near, beside) or read_beside(file, beside)) is not None:
            yield there


def takes_arguments(script: tuple[str, str], beside: Beside) -> bool:
    """Whether a script, or a file of the project that it imports, has the Trainer's arguments."""
    return any(reads_a_file(text) for _name, text in with_imported(script, beside))


def is_config_file(document: Document | None) -> bool:
    """Whether it is a ds_config, which is JSON."""
    return document is not None and document.name.lower().endswith(JSON) and kind_of(document) is Kind.CONFIG


def arguments_of(document: Document | None) -> Arguments | None:
    """TrainingArguments; None where another thing is called so."""
    if document is None or kind_of(document) not in (Kind.ARGUMENTS, Kind.OTHER) or not _are_arguments(document):
        return None
    return Arguments(document)


def _are_arguments(document: Document) -> bool:
    return has_own(document.config) or tool_of(document.config) is not None


def holds_config(document: Document | None) -> bool:
    """Whether a program's own file has a config in a section of it, or names one by a key of its own."""
    if document is None or kind_of(document) is not Kind.OTHER:
        return False
    return inner(document) is not None or named_in(document) is not None


def processes_of(name: str | None, beside: Beside) -> int | None:
    """Those of a file of `accelerate launch`, or of TRL's package."""
    document = document_of(name, lambda file: beside(file) or own_accelerate_config(file))
    return AccelerateConfig(document).processes if document is not None and is_accelerate_config(document) else None


def first_file(words: Sequence[Word], beside: Beside) -> Document | None:
    """The training file that is the first argument of a script, as LLaMA-Factory's src/train.py and transformers'
    example scripts take one.
    """
    document = named_document(words[0], beside) if words else None
    return document if arguments_of(document) is not None else None


def training_file(words: Sequence[Word]) -> Word | None:
    """The file of `llamafactory-cli train FILE`, `axolotl train FILE` and its module, `swift sft FILE`, and
    `trl sft --config FILE`.
    """
    if len(words) > 2 and (words[0].text or "").rpartition("/")[2] == "swift":
        return words[2] if (words[2].text or "").endswith((".yaml", ".yml", ".json")) else None
    if words and (words[0].text or "").rpartition("/")[2] == "trl":
        file = dict(options_of(words)).get("--config")
        return file if file is not None and (file.text or "").endswith((".yaml", ".yml")) else None
    at = next((at for at, word in enumerate(words) if (word.text or "").rpartition("/")[2] in OF_FILES), None)
    if at is None:
        return None
    for before, word in pairwise(words[at:]):
        if (word.text or "").endswith((".yaml", ".yml", ".json")) and not (before.text or "").startswith("--"):
            return word
    return None
