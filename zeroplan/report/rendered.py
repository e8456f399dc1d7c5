"""A screen as plain text and as HTML, for whoever has no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.text import Text

from zeroplan.report.console import Piped, assumptions, console, printed, trimmed
from zeroplan.report.depth import BRIEF, QUIET

BLOCK = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'


class Screen(NamedTuple):
    """What a command shows: the answer as one line, then the rest to the console's width."""

    summary: Text
    parts: list[RenderableType]


def screen(
    summary: Text, head: list[RenderableType], body: list[RenderableType], said: Sequence[str], level: int,
    after: Sequence[RenderableType] = (),
) -> Screen:  # fmt: skip
    """At a level: the answer and what stands below it always, what its tables are, what to do next (`after`, on the
    short screen) and what was assumed.
    """
    if level == QUIET:
        return Screen(summary, head)
    if level > BRIEF:
        return Screen(summary, [*head, *body, "", *assumptions(tuple(said))])
    from zeroplan.report.brief.assumed import assumed
    from zeroplan.report.brief.lines import within

    return Screen(summary, within(summary, head, body, [*after, *assumed(said)]))


def text(screen: Screen) -> str:
    """As the command prints it, without colour; as wide as the terminal."""
    return trimmed(_printed(screen).export_text()).rstrip("\n")


def html(screen: Screen) -> str:
    """One block with its colours in it."""
    return _printed(screen).export_html(inline_styles=True, code_format=BLOCK)


def _printed(screen: Screen) -> Console:
    out = Piped(
        file=StringIO(), record=True, width=console().width, highlight=False, emoji=False, markup=False,
        force_jupyter=False, force_terminal=False,
    )  # fmt: skip
    printed(out, screen.summary, *screen.parts)
    return out
