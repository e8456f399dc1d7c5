"""Options that hold several values where a command takes them: text with commas, or a list."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.request.options import OPTIONS
from zeroplan.request.values import AUTO, as_options_have_it, flag, with_card, written

CARDS = ("gpu", "gpu_mem", "cluster")
"""Options of `recommend` that may hold several cards."""
INSTEAD = {"gpus": f"write --gpus {AUTO} for the fewest, or zeroplan compare --gpus 8,64"}
MOST_CARDS = 32
"""Cards in one table, at most."""


def cards_named(stated: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The option that names several cards, with their names; empty where one is asked of."""
    several = lists(stated, CARDS, "recommend", INSTEAD)
    if len(several) > 1:
        first, second = list(several)[:2]
        raise ContradictionError(f"{flag(first)} and {flag(second)} both name several cards; keep one")
    for names in several.values():
        if len(names) > MOST_CARDS:
            raise QuantityError(f"recommend: found {len(names)} cards, expected at most {MOST_CARDS}; write fewer")
    return several


def lists(
    stated: Mapping[str, Any], takes: Sequence[str], command: str, instead: Mapping[str, str]
) -> dict[str, list[Any]]:  # fmt: skip
    """The values of each option that holds several, in the order of `takes`.

    Raises `QuantityError` for an option that the command takes one value of; `instead`: what to write for it.
    """
    with_card(stated.get("gpus"), stated.get("gpu"))  # two cards are none of several
    single = (name for name, option in OPTIONS.items() if not option.repeats)
    several = {name: parts for name in single if len(parts := _parts(stated.get(name))) > 1}
    for name in several:
        _check_varies(name, label(name, stated[name]), takes, command, instead)
    for name in takes:
        if name in several:
            _check_parts(name, several[name], label(name, stated[name]))
    return {name: several[name] for name in takes if name in several}


def label(name: str, value: Any) -> str:
    """A value as the option has it, by which a row is known."""
    return as_options_have_it(name, written(name, value))


def _parts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return value.split(",")
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [part for each in value for part in _parts(each)]
    return [value]


def _check_parts(name: str, parts: Sequence[Any], text: str) -> None:
    named = [part for part in parts if part is not None and str(part).strip()]
    if len(named) < len(parts):
        expected, write = "something on both sides of each comma", written(name, named) or "ONE,ANOTHER"
        raise QuantityError(f"{flag(name)}: found {shown(text)}, expected {expected}; write {flag(name)} {write}")


def _check_varies(name: str, text: str, takes: Sequence[str], command: str, instead: Mapping[str, str]) -> None:
    """A list where one value is taken; the name of a file may hold a comma."""
    if name in takes or os.path.exists(text):
        return
    options = ", ".join(map(flag, takes))
    raise QuantityError(
        f"{command}: found several values behind {flag(name)}, expected them behind any of {options}; "
        f"{instead.get(name, f'write one of them and run {command} for each {flag(name)}')}"
    )
