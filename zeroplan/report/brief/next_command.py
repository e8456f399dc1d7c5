"""What to do next, as a command to paste: the one that was typed, changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.text import Text

from zeroplan.report.console import console

SCREEN = {"-q", "--quiet", "-v", "-vv", "--verbose", "--json", "--timeline", "--partial", "--force"}
"""Flags of the screen and of files, which another command is typed without."""
WITH_VALUES = {"--accounting", "-o", "--output", "--dir", "--why"}


def changed(typed: Sequence[str], command: str, *more: str) -> str:
    """The words that were typed, as another command and with more words behind, which stand for earlier ones."""
    kept, skip, left_out = [], False, SCREEN | WITH_VALUES | {word for word in more if word.startswith("--")}
    for word in typed[1:]:
        name = word.partition("=")[0]
        if not skip and name not in left_out:
            kept.append(word)
        skip = not skip and word in left_out - SCREEN
    return shlex.join(["zeroplan", command, *kept, *more])


def line(command: str, what: str) -> Text:
    """The command in one piece, and where there is room what it gives, as a comment of the shell."""
    said = f"  # {what}"
    shown = Text.assemble("next: ", (command, "bold"), no_wrap=True, overflow="ignore")
    return shown.append(said, "dim") if len(shown) + len(said) <= console().width else shown
