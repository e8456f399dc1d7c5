"""The table [tool.zeroplan] of a project: what `zeroplan check` is told where the command line says nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from zeroplan.check.finding import SEVERITIES
from zeroplan.check.setting import READERS
from zeroplan.errors import SpecError, nearest, shown

NAME = "pyproject.toml"
EXPECTED = "a pyproject.toml"
TEXTS, WHOLE, NAMES = "a text", "a whole number from 1", "a list of texts"
KINDS = {"select": NAMES, "ignore": NAMES, "fail-on": TEXTS, "for": TEXTS, "deepspeed": TEXTS, "gpus": WHOLE}
"""Keys of the table, named as the options are."""
WORDS = {"for": READERS, "fail-on": SEVERITIES}
PART = re.compile(r"""[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*""")
"""A part of a key, between two dots."""
DEEPEST = 50
EXAMPLES = {TEXTS: '"..."', WHOLE: "8", NAMES: '["ZP4"]'}


def table() -> dict[str, Any]:
    """The table of the nearest pyproject.toml, from the current folder upwards; {} where that has none.

    Raises `SpecError` for a key that is not known and a value of another kind, with the file and the key.
    """
    path = next((folder / NAME for folder in (Path.cwd(), *Path.cwd().parents) if (folder / NAME).is_file()), None)
    if path is None:
        return {}
    content = _read(path).get("tool", {})
    stated = content.get("zeroplan", {}) if isinstance(content, dict) else {}
    if not isinstance(stated, dict):
        raise SpecError(f"{path}: tool.zeroplan", shown(stated), "a table", "[tool.zeroplan]")
    for name, value in stated.items():
        _check(path, name, value)
    return stated


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    from zeroplan.catalog.files import LARGEST_CONFIG, read_text

    text = read_text(path, EXPECTED, LARGEST_CONFIG)
    if is_deep(text):
        raise SpecError(str(path), f"a key of over {DEEPEST} parts", EXPECTED)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(str(path), f"text that is not TOML ({error})", EXPECTED) from error
    except ValueError as error:  # which Python says of digits alone
        raise SpecError(str(path), "a whole number of over 4,300 digits", EXPECTED) from error


def is_deep(text: str) -> bool:
    """Whether a key such as a.b.c has more parts than any has that means something: tomllib looks at each part once for
    every part behind it.
    """
    depth = 0
    for part in text.split("."):
        depth = depth + 1 if PART.fullmatch(part) else 0
        if depth >= DEEPEST:
            return True
    return False


def _check(path: Path, name: str, value: Any) -> None:
    place = f"{path}: tool.zeroplan.{name}"
    if name not in KINDS:
        raise SpecError(place, "a key that there is not", " or ".join(KINDS), nearest(name, KINDS))
    kind = KINDS[name]
    fine = {
        TEXTS: isinstance(value, str), WHOLE: type(value) is int and value > 0,
        NAMES: isinstance(value, list) and all(isinstance(item, str) for item in value),
    }[kind]  # fmt: skip
    if not fine:
        raise SpecError(place, shown(value), kind, f"{name} = {EXAMPLES[kind]}")
    if name in WORDS and value not in WORDS[name]:
        raise SpecError(place, shown(value), " or ".join(WORDS[name]), f'{name} = "{nearest(value, WORDS[name])}"')
    if kind == NAMES:
        _check_rules(place, value)


def _check_rules(place: str, beginnings: list[str]) -> None:
    from zeroplan.check.chosen import begins_a_rule
    from zeroplan.check.rules import RULES

    for beginning in beginnings:
        if not begins_a_rule(beginning.strip().upper()):
            write = f'"{nearest(beginning.upper(), RULES)}"'
            raise SpecError(place, shown(beginning), "the id of a rule, or how ids begin", write)
