"""The terminal: how wide it is, and the plain table that all reports share."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from zeroplan.errors import printable

NARROWEST = 60
MOST_DIGITS = 4
"""Most digits of a width in columns."""
PIPED = 100
"""Columns when nobody watches: wide enough that no number is wrapped."""


ASCII = str.maketrans({
    "█": "#", "▓": "%", "▒": "+", "░": "-", "·": ".", "│": "|", "▶": ">", "≈": "~~", "×": "x", "→": "->", "✗": "X",
})  # fmt: skip
"""What stands for drawn and other signs where a terminal has no Unicode."""


SPACE = re.compile(r"""'[^']*'|"[^"]*"|\\.|( )""")
"""A space between words of the shell, behind what may hold one that is none."""
GOES_ON, INDENT = " \\", " " * 4
"""At the end of a line of a command that has another, and before that one."""


class Piped(Console):
    """A console whose reader may leave (`| head`): the exit code stays that of the answer, where rich makes it 1. What
    no terminal should obey is escaped.
    """

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Names and values of the user's are in what is shown: none of them is obeyed by a terminal."""
        for segment in super().render(renderable, options):
            text = segment.text if self.encoding.startswith("utf") else segment.text.translate(ASCII)
            plain = segment.control or text.isprintable()
            shown = text if plain else printable(text, keeps="\n")
            yield segment if shown is segment.text else Segment(shown, segment.style)


def console(*, errors: bool = False) -> Console:
    """A console as wide as the terminal (`COLUMNS` wins), on standard output or standard error.

    rich honours NO_COLOR, which is of colours alone: bold and dim stay, unless TERM is dumb. Pipes get neither.
    """
    stated = os.environ.get("COLUMNS", "")
    width = int(stated) if stated.isascii() and stated.isdecimal() and len(stated) <= MOST_DIGITS else 0
    if not width:
        width = shutil.get_terminal_size((PIPED, 25)).columns if sys.stdout.isatty() else PIPED
    return Piped(width=max(width, NARROWEST), highlight=False, emoji=False, markup=False, stderr=errors)


def heading(text: str) -> Text:
    return Text(text, style="bold")


def assumptions(what: tuple[str, ...]) -> list[RenderableType]:
    """What nobody stated, below everything else; nothing where all was."""
    return [Text("assumed: " + "; ".join(what), style="dim")] if what else []


def table(columns: list[str]) -> Table:
    """A plain table: first column to the left, numbers to the right and never cut."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns))
    for index, name in enumerate(columns):
        grid.add_column(name, justify="right" if index else "left", no_wrap=bool(index), overflow="fold")
    return grid


def show(summary: Text, parts: Sequence[RenderableType], *, errors: bool = False) -> None:
    """Print the answer, then the rest to the console's width; in a pipe the answer is one line."""
    out = console(errors=errors)
    if out.is_terminal:
        printed(out, summary, *parts)
        return
    with out.capture() as captured:
        printed(out, summary, *parts)
    try:
        out.file.write(trimmed(captured.get()))
        out.file.flush()
    except BrokenPipeError:
        out.on_broken_pipe()


def printed(out: Console, summary: Text, *parts: RenderableType) -> None:
    """As `show`, to this console."""
    out.print(summary, soft_wrap=not out.is_terminal)
    for part in parts:
        if isinstance(part, Text) and part.no_wrap is True:
            out.print(broken(part, out.width) if out.is_terminal else part, soft_wrap=True)
        else:
            out.print(part)


def broken(text: Text, width: int) -> Text:
    """A command of the shell in lines of that width, as far as its words have room. All but the last end with a
    backslash, so that it can be pasted.
    """
    words, at = [], 0
    for space in SPACE.finditer(text.plain):
        if space[1]:
            words.append(text[at : space.start(1)])
            at = space.end(1)
    lines = Text()
    for word in (*words, text[at:]):
        before = len(lines.plain.rpartition("\n")[2])
        if before and before + 1 + len(word) + len(GOES_ON) > width:
            lines.append(f"{GOES_ON}\n{INDENT}")
        elif before:
            lines.append(" ")
        lines.append_text(word)
    return lines


def trimmed(text: str) -> str:
    """Without the blanks that fill a table's last column."""
    return "\n".join(line.rstrip() for line in text.split("\n"))
