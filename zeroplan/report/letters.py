"""The letters of equations, with what each stands for in a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from zeroplan.autograd.equation import JOINT
from zeroplan.costs.closed_forms import counted
from zeroplan.ledger import Line
from zeroplan.specs.job import Job
from zeroplan.symbols import BY_LETTER


def letters_in(equations: Iterable[str]) -> set[str]:
    """Every letter that they are written in."""
    return {letter for equation in equations for letter in re.findall(r"[^\W\d]+", equation)}


def valued(used: set[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Values of those letters that sizes of the model have one for: their own, or a product's (T = b·s)."""
    values = dict(sizes)
    for letter, product in JOINT:
        if all(name in values for name, exponent in product.items() if exponent > 0):
            size = 1
            for name, exponent in product.items():
                size = size * values[name] if exponent > 0 else size // values[name]
            values.setdefault(letter, size)
    return {letter: values[letter] for letter in BY_LETTER if letter in used and letter in values}


def letters(job: Job, lines: Iterable[Line]) -> dict[str, int]:
    """Letter -> value, for the lines whose equation is in the model's own sizes."""
    used = letters_in(entry.equation for entry in lines if entry.equation)
    saved = counted(job) if used else None
    return valued(used, saved.sizes) if saved else {}
