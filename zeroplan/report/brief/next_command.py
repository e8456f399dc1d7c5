"""What to do next, as a command to paste: the one that was typed, changed."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from rich.console import RenderableType
from rich.text import Text

from zeroplan.report.console import console

SCREEN = {"-q", "--quiet", "-v", "-vv", "--verbose", "--json", "--timeline", "--partial", "--force"}
"""Flags of the screen and of files, which another command is typed without."""
WITH_VALUES = {"--accounting", "-o", "--output", "--dir", "--why"}
CARD = {"--gpu", "--gpu-mem"}
"""Options of which a command has one."""
SETTLED = {"--stage", "--micro-batch", "--grad-accum", "--checkpointing", "--offload-optimizer", "--offload-param"}
"""Options of one strategy, which are left open where the best is looked for."""


def changed(typed: Sequence[str], command: str, *more: str, without: Collection[str] = ()) -> str:
    """The words that were typed, as another command and with more words behind, which stand for earlier ones.

    `without`: options that are left out, with their values.
    """
    kept, skip = [], False
    left_out = SCREEN | WITH_VALUES | set(without) | {word for word in more if word.startswith("--")}
    left_out |= CARD if left_out & CARD else set()
    for word in typed[1:]:
        name = word.partition("=")[0]
        if not skip and name not in left_out:
            kept.append(word)
        skip = not skip and word in left_out - SCREEN
    return shlex.join(["zeroplan", command, *kept, *more])


def line(command: str, what: str) -> list[RenderableType]:
    """The command in one piece, and where there is room what it gives, as a comment of the shell.

    Nothing where a word has letters that do not print, or stands for standard input: it cannot be pasted.
    """
    if not command.isprintable() or " - " in f"{command} ":
        return []
    said = f"  # {what}"
    shown = Text.assemble("next: ", (command, "bold"), no_wrap=True, overflow="ignore")
    return [shown.append(said, "dim") if len(shown) + len(said) <= console().width else shown]
