"""Which files of a folder are DeepSpeed configs, or name one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from zeroplan.catalog.files import LARGEST_CONFIG, LARGEST_FILE, OF_DEEPSPEED, beside, read_text
from zeroplan.catalog.trainers.tools import tool_of
from zeroplan.check.accelerate_config import AccelerateConfig
from zeroplan.check.arguments import YAML
from zeroplan.check.files import strategy_of
from zeroplan.check.gpt_neox import handed_on, is_neox
from zeroplan.check.inner import inner
from zeroplan.check.json_reader import NotReadableError
from zeroplan.check.kind import (
    DEEPSPEED,
    JSON,
    NOTEBOOK,
    OWN_KEYS,
    PYTHON,
    SCRIPT,
    Kind,
    is_notebook,
    kind_of,
    read_document,
)
from zeroplan.check.python_reader import WORDS
from zeroplan.errors import SpecError, ZeroplanError, shown

ENDINGS = (*JSON, *YAML, *SCRIPT, PYTHON, NOTEBOOK)
EXPECTED = "a ds_config.json"


def configs(paths: Sequence[str]) -> list[str]:
    """The paths with each folder replaced by the configs below it, each once, folders in the order of their names.

    A file that is named is taken as it is. In a folder, a file is taken that `looks_like_config`. Symbolic
    links to folders are not followed, so that none leads round in a circle, and hidden folders are left out. Raises
    `SpecError` for a folder that holds no config: a gate that looks at nothing must not pass.
    """
    files: dict[str, None] = {}
    for path in paths:
        if path != "-" and os.path.isdir(path):
            inside = [name for name in _walked(path) if looks_like_config(name)]
            if not inside:
                expected = "a DeepSpeed config in *.json or *.hjson, or a *.yaml that names one"
                raise SpecError(shown(path)[1:-1], "a folder without one", expected, "the name of a file")
            files.update(dict.fromkeys(inside))
        else:
            files[path] = None
    return list(files)


def _walked(folder: str) -> Iterator[str]:
    """Regular files by their endings. Raises `SpecError` for a folder that cannot be listed."""
    for place, folders, names in os.walk(folder, onerror=_stop):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(place, name))
            if name.lower().endswith(ENDINGS) and os.path.isfile(path):
                yield path


def _stop(error: OSError) -> None:
    place = shown(str(error.filename))[1:-1]
    raise SpecError(place, (error.strerror or str(error)).lower(), "a folder that can be listed") from error


def looks_like_config(path: str) -> bool:
    """By its name, where it is JSON; else by what stands in it: that it is a ds_config, has one or names one."""
    if path.lower().endswith(SCRIPT):
        return _starts_with_config(path)
    if path.lower().endswith(PYTHON):
        return _has_or_names_config(path)
    if is_notebook(path):
        return _is_notebook_with_config(path)
    is_named = not path.lower().endswith(YAML) and OF_DEEPSPEED.search(os.path.basename(path).lower())
    return bool(is_named) or _has_config(path)


def _has_config(path: str) -> bool:
    """What is not to be read as an object is no config."""
    try:
        text = read_text(path, EXPECTED, LARGEST_CONFIG)
        if path.lower().endswith(YAML) and not any(word in text for word in (DEEPSPEED, *OWN_KEYS)):
            return False
        document = read_document(path, text, EXPECTED)
    except (ZeroplanError, NotReadableError):
        return False
    kind, stated = kind_of(document), document.config.get(DEEPSPEED)
    if kind is Kind.ACCELERATE:
        accelerate = AccelerateConfig(document)
        return accelerate.is_deepspeed and bool(accelerate.fields)
    if kind is Kind.ARGUMENTS:
        is_file = isinstance(stated, str) and (stated.endswith(JSON) or tool_of(document.config) is not None)
        return is_file or isinstance(stated, dict)
    if is_neox(document.config):
        return bool(handed_on(document).config)
    return kind is not Kind.OTHER or inner(document) is not None or strategy_of(document) is not None


def _has_or_names_config(path: str) -> bool:
    """Whether a Python file holds a config or names one that is there, and is Python."""
    try:
        return _python_has(path, read_text(path, EXPECTED, LARGEST_CONFIG))
    except ZeroplanError:
        return False


def _python_has(path: str, text: str) -> bool:
    if not any(word in text for word in (*WORDS, DEEPSPEED)):
        return False
    from zeroplan.check.python_reader import python_configs  # where there is such a file

    try:
        written = python_configs(path, text)
        files = (file for _line, name, _use in written.named for file in beside(path, name))
        return bool(written.literals or written.refused or written.texts) or any(map(os.path.isfile, files))
    except ZeroplanError:
        return False


def _is_notebook_with_config(path: str) -> bool:
    """By its cells, and by what they write."""
    from zeroplan.check.notebook import parts_of  # where there is such a file

    try:
        text = read_text(path, EXPECTED, LARGEST_FILE)
        parts = parts_of(path, text) if DEEPSPEED in text.lower() else None
    except ZeroplanError:
        return False
    if parts is None:
        return False
    return bool(parts.written) or _python_has(path, parts.python) or _script_starts(path, parts.shell)


def _starts_with_config(path: str) -> bool:
    """Whether a script gives a training run a config that is there, seen from it or from here."""
    try:
        return _script_starts(path, read_text(path, EXPECTED, LARGEST_CONFIG))
    except ZeroplanError:
        return False


def _script_starts(path: str, text: str) -> bool:
    if not any(word in text for word in (DEEPSPEED, "--config_file")):
        return False
    from zeroplan.check.launcher import launches  # where there is such a file

    started = launches(path, text)
    files = (file for one in started for name in one.names for file in beside(path, name))
    return any(one.built for one in started) or any(map(os.path.isfile, files))
