"""The model as the first word behind a command: a size is --params, anything else --model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from zeroplan.errors import ContradictionError, printable, shown
from zeroplan.request.values import flag


def with_model(options: Mapping[str, Any], word: str) -> dict[str, Any]:
    """The options with the model that was named without one. Raises `ContradictionError` where an option names one."""
    for name in ("params", "model"):
        if name in options:
            raise ContradictionError(f"{printable(word)} and {flag(name)} {options[name]} both name a model; keep one")
    sizes = {is_size(part) for part in word.split(",")}
    if len(sizes) > 1 and not os.path.exists(word):
        raise ContradictionError(f"found sizes and names in {shown(word)}, expected one kind; write two commands")
    return {**options, "params" if sizes == {True} else "model": word}


def is_size(word: str) -> bool:
    """A word that begins with a digit and is no path: `7B`, `1.3b`, `6738415616`."""
    return word[:1].isdigit() and "/" not in word and not word.endswith(".json")
