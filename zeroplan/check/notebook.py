"""The findings of a notebook: of its cells in Python, of what they start in a shell, of configs that they write.

Each line keeps its number in the file, where it has one of its own there; else lines are counted from the first cell of
code on. Nothing of it runs.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from contextlib import suppress
from functools import partial
from itertools import count
from typing import NamedTuple

from zeroplan.check.arguments import YAML
from zeroplan.check.document import Beside
from zeroplan.check.files import check_config_file
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import JSON, PYTHON, is_config, is_script
from zeroplan.check.named_config import CheckedFiles, Made, check_json
from zeroplan.check.python_file import check_python, refused_by
from zeroplan.check.python_names import names_of
from zeroplan.check.python_nodes import parsed
from zeroplan.check.rules.calls import Refused, arguments_of_a_kernel
from zeroplan.check.script import started
from zeroplan.check.setting import Setting
from zeroplan.errors import SpecError

NOT_THERE = "which is not there"
EXPECTED = "a cell with a DeepSpeed config, or one that starts a run with it"
CELL, SOURCE = re.compile(r'^\s*"cell_type":\s*"(\w+)"'), re.compile(r'^\s*"source":\s*\[\s*$')
WRITES, SHELL = re.compile(r"%%writefile\s+(-a\s+)?(\S+)"), re.compile(r"%%(?:bash|sh)\b")
LINE = re.compile(r"(\s*)(?:(!)\s*(.*)|%[A-Za-z%].*|\w+\s*=\s*[!%].*|[\w.]+\?+\s*$)", re.DOTALL)
"""A line for a shell, or for IPython."""
MOST = 20
"""Files that cells write which no other names."""
ARGV, INITIALIZES = "argv", "deepspeed.initialize("
PUT_IN = re.compile(r"(?<![${\w])\{([A-Za-z_][^{}]*)\}")
"""An expression of Python in such a line."""


class Parts(NamedTuple):
    """The cells of code: of each line only one part has it, and the whole."""

    python: str
    shell: str
    written: dict[str, str]
    """Files that cells write, by name."""
    whole: str


def check_notebook(name: str, text: str, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """Raises `SpecError` for one without a config."""
    parts = parts_of(name, text)

    left = dict(parts.written)

    def seen(named: str) -> tuple[str, str] | None:
        written = posixpath.normpath(named)
        own = parts.written.get(written)
        left.pop(written, None)
        return (_called(written, name), own) if own is not None else beside(named)

    checked, missing = CheckedFiles(), list[SpecError]()
    in_shell = partial(started, handed=_constants(parts.python))
    for part, check in ((parts.python, check_python), (parts.shell, in_shell)):
        try:
            inner = check(name, part, setting, seen, made)
        except SpecError as error:
            missing += [error] if NOT_THERE in error.found else []
            continue
        checked.findings += inner.findings
        checked.texts |= inner.texts
        checked.notes += inner.notes
    for written, content in tuple(left.items())[:MOST]:
        inner = _of_written(written, _called(written, name), content, setting, seen, made)
        checked.findings += inner.findings
        checked.texts |= inner.texts
        checked.notes += [f"{name}: writes {written}", *inner.notes] if inner.texts else []
    if (checked.texts or INITIALIZES in parts.python) and ARGV not in parts.python:
        stops = refused_by(name, parts.python, _of_kernel(parts.python))
        checked.findings += stops
        checked.texts |= {name: parts.whole} if stops else {}
    if not checked.texts and missing:
        raise missing[0]
    if not checked.texts:
        raise SpecError(name, "a notebook without a DeepSpeed config", EXPECTED)
    checked.texts[name] = parts.whole
    return checked


def _of_kernel(text: str) -> list[tuple[int, Refused]]:
    """Where parsers stop at the arguments of the kernel, by the offsets of their lines."""
    tree, lines = parsed(text), text.splitlines(keepends=True)
    refused = [] if tree is None else list(arguments_of_a_kernel(tree))
    return [(sum(map(len, lines[: one.node.lineno - 1])) + one.node.col_offset, one) for one in refused]


def _constants(text: str) -> dict[str, str]:
    """Texts and numbers that names of the cells stand for, which IPython puts into a line for a shell."""
    tree = parsed(text)
    constants = {} if tree is None else names_of(tree).constants
    stated = {name: getattr(value, "value", None) for name, value in constants.items()}
    return {name: str(value) for name, value in stated.items() if isinstance(value, str | int | float)}


def _called(written: str, name: str) -> str:
    """What messages call a file that a cell writes: one of JSON as the notebook, where its lines stand."""
    return name if written.lower().endswith(JSON) else f"{written} of {name}"


def _of_written(
    written: str, called: str, content: str, setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """The findings of a file that a cell writes and no other names; nothing where it has no config."""
    if written.lower().endswith(JSON):
        findings = check_json(called, content, setting, made) if _is_config(content) else None
        return CheckedFiles() if findings is None else CheckedFiles(findings, {called: content})
    with suppress(SpecError, NotReadableError):
        if written.lower().endswith(YAML):
            return check_config_file(called, content, setting, beside, made)
        if written.endswith(PYTHON):
            return check_python(called, content, setting, beside, made)
        if is_script(written, content):
            return started(called, content, setting, beside, made)
    return CheckedFiles()


def _is_config(text: str) -> bool:
    try:
        return is_config(read_json("", text).config)
    except NotReadableError:
        return False


def parts_of(name: str, text: str) -> Parts:
    """Raises `SpecError` for what is no notebook."""
    try:
        content = json.loads(text)
        sources = [cell.get("source", []) for cell in content["cells"] if cell.get("cell_type") == "code"]
        stated = ["".join(source) if isinstance(source, list) else str(source) for source in sources]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise SpecError(name, "text that is no notebook", "JSON of nbformat") from error
    cells, several = _placed(text.splitlines()), [cell.splitlines() for cell in stated if cell]
    if [[line for _at, line in cell] for cell in cells] != several:  # written on one line, or otherwise
        numbers = count()
        cells = [[(next(numbers), line) for line in cell] for cell in several]
    return _apart(cells)


def _apart(cells: list[list[tuple[int, str]]]) -> Parts:
    """The parts of cells whose lines are numbered from 0."""
    length = max((at for cell in cells for at, _line in cell), default=0) + 1
    whole, python, shell = ([""] * length for _ in range(3))
    written: dict[str, list[str]] = {}
    for cell in cells:
        first = cell[0][1]
        file, by_shell = WRITES.match(first), SHELL.match(first) is not None
        target = "" if file is None else posixpath.normpath(file[2])
        if file is not None and (not file[1] or target not in written):
            written[target] = [""] * length
        into = shell if by_shell else written.get(target)
        goes_on = False
        for at, line in cell:
            whole[at] = line
            if into is not None:
                into[at] = "" if at == cell[0][0] else line
            else:
                python[at], shell[at] = ("", _in_shell(line)) if goes_on else _of_line(line)
                goes_on = bool(shell[at]) and line.endswith("\\")
        if not _is_python("\n".join(python[at] for at, _line in cell)):
            for at, _line in cell:
                python[at] = ""
    files = {name: "\n".join(content) for name, content in written.items()}
    return Parts("\n".join(python), "\n".join(shell), files, "\n".join(whole))


def _is_python(text: str) -> bool:
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        ast.parse(text)
        return True
    return False


def _of_line(line: str) -> tuple[str, str]:
    """A line of Python, and of a shell: `!deepspeed train.py` is one."""
    match = LINE.match(line)
    if match is None:
        return line, ""
    return f"{match[1]}pass", _in_shell(match[3] or "")


def _in_shell(line: str) -> str:
    """A line with names that IPython puts values in for as variables; of another expression nothing is known."""
    return PUT_IN.sub(lambda match: f"${{{match[1]}}}" if match[1].isidentifier() else "${_}", line)


def _placed(lines: list[str]) -> list[list[tuple[int, str]]]:
    """The lines of each cell of code, with their numbers in the file, where each stands on one of its own."""
    cells, kind, is_source = list[list[tuple[int, str]]](), "", False
    for at, line in enumerate(lines):
        stripped = line.strip()
        if is_source and stripped in ("]", "],"):
            is_source = False
        elif is_source and kind == "code":
            with suppress(ValueError):
                cells[-1].append((at, str(json.loads(stripped.removesuffix(","))).rstrip("\r\n")))
        elif (match := CELL.match(line)) is not None:
            kind = match[1]
        elif SOURCE.match(line) is not None:
            is_source = True
            cells.append([])
    return [cell for cell in cells if cell]
