"""A short screen in as many lines as a person reads: what goes beyond them is left to -v."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from zeroplan.report.console import broken, console

MOST, MOST_NARROW = 24, 30
"""Lines of a screen from 100 columns on, and of a narrower one."""
WIDE = 100


def within(
    summary: Text, head: Sequence[RenderableType], body: Sequence[RenderableType], tail: Sequence[RenderableType]
) -> list[RenderableType]:
    """Below the answer: all of `head` and `tail`, and of `body` as many lines as there is room for."""
    whole = Text(summary.plain, no_wrap=not console().is_terminal)
    most = MOST if console().width >= WIDE else MOST_NARROW
    room = most - sum(len(_lines(part)) for part in (_wrapped(whole), *head, *map(_wrapped, tail)))
    lines = _lines(Group(*body))
    if len(lines) > room:
        body = [part for part in body if part != ""]
        lines = _lines(Group(*body))
    if len(lines) <= max(room, 0):
        return [*head, _rendered(lines), *tail]
    count = max(room - 1, 1)
    left = Text(f"... {len(lines) - count} more lines (-v)", style="dim")
    return [*head, _rendered(lines[:count]), left, *tail]


def _rendered(lines: list[list[Segment]]) -> Segments:
    """As they are, not to be rendered once more."""
    return Segments([segment for line in lines for segment in (*line, Segment.line())])


def _lines(shown: RenderableType) -> list[list[Segment]]:
    return console().render_lines(shown, pad=False)


def _wrapped(shown: RenderableType) -> RenderableType:
    """As a terminal breaks what is printed as one line."""
    if not isinstance(shown, Text) or shown.no_wrap is not True:
        return shown
    width = console().width
    if console().is_terminal:
        return broken(shown, width)
    return Text("\n".join(shown.plain[at : at + width] for at in range(0, len(shown), width)))
