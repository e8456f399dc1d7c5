"""The model as the first word behind a command: a size is --params, anything else --model."""

from __future__ import annotations

import os

from zeroplan.cli.options import Options, flag
from zeroplan.errors import ContradictionError, printable, shown


def named(options: Options, word: str | None) -> Options:
    """The options with the model that was named without one. Raises `ContradictionError` where an option names one."""
    if word is None:
        return options
    for name in ("params", "model"):
        typed = getattr(options, name)
        if typed is not None:
            raise ContradictionError(f"{printable(word)} and {flag(name)} {typed} both name a model; keep one")
    sizes = {is_size(part) for part in word.split(",")}
    if len(sizes) > 1 and not os.path.exists(word):
        raise ContradictionError(f"found sizes and names in {shown(word)}, expected one kind; write two commands")
    setattr(options, "params" if sizes == {True} else "model", word)
    return options


def is_size(word: str) -> bool:
    """A word that begins with a digit and is no path: `7B`, `1.3b`, `6738415616`."""
    return word[:1].isdigit() and "/" not in word and not word.endswith(".json")
