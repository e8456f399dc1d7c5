"""Options that hold several values, separated by commas, where a command takes them, or a number to be found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from zeroplan.cli.options import Options, flag
from zeroplan.errors import ContradictionError, QuantityError, shown

AUTO = "auto"
CARDS = ("gpu", "gpu_mem", "cluster")
"""Options of `recommend` that may hold several cards."""
INSTEAD = {"gpus": f"write --gpus {AUTO} for the fewest, or zeroplan compare --gpus 8,64"}
MOST_CARDS = 32
"""In one table."""


def cards_named(options: Options) -> dict[str, list[str]]:
    """The option that names several cards, with their names; empty where one is asked of."""
    several = lists(options, CARDS, "recommend", INSTEAD)
    if len(several) > 1:
        first, second = list(several)[:2]
        raise ContradictionError(f"{flag(first)} and {flag(second)} both name several cards; keep one")
    for names in several.values():
        if len(names) > MOST_CARDS:
            raise QuantityError(f"recommend: found {len(names)} cards, expected at most {MOST_CARDS}; write fewer")
    return several


def lists(options: Options, takes: Sequence[str], command: str, instead: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of each option that holds several, in the order of `takes`.

    Raises `QuantityError` for an option that the command takes one value of; `instead`: what to write for it.
    """
    several = [name for name in Options.__annotations__ if "," in (getattr(options, name) or "")]
    for name in several:
        _check_varies(name, getattr(options, name), takes, command, instead)
    return {name: _parts(flag(name), getattr(options, name)) for name in takes if name in several}


def _parts(option: str, text: str) -> list[str]:
    parts = text.split(",")
    named = [part for part in parts if part.strip()]
    if named != parts:
        expected = "something on both sides of each comma"
        write = f"{option} {','.join(named) or 'ONE,ANOTHER'}"
        raise QuantityError(f"{option}: found {shown(text)}, expected {expected}; write {write}")
    return parts


def with_values(options: Options, changed: Mapping[str, str | None]) -> Options:
    """The same options, some of them with another value."""
    typed = {name: changed.get(name, getattr(options, name)) for name in Options.__annotations__}
    return Options(options.script, **typed)


def _check_varies(name: str, text: str, takes: Sequence[str], command: str, instead: Mapping[str, str]) -> None:
    """A list where one value is taken; the name of a file may hold a comma."""
    if name in takes or os.path.exists(text):
        return
    options = ", ".join(map(flag, takes))
    raise QuantityError(
        f"{command}: found several values behind {flag(name)}, expected them behind any of {options}; "
        f"{instead.get(name, f'write one of them and run {command} for each {flag(name)}')}"
    )
