"""Help pages: examples first, then the options that most people use, and with --help-all every option."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import TextWrapper

import click

from zeroplan.cli.help_pages import ARGUMENTS, FRONT, FRONT_EXAMPLES, OF_A_JOB, PAGES, SCOPE, SHORT_SCOPE, Page
from zeroplan.cli.options import EVERYTHING, OUTPUT, PanelOption
from zeroplan.request.options import CLUSTER, GOAL, JOB, MODEL

WIDEST = 100
"""Columns: longer lines are hard to read."""
NAMES = 34
"""Columns that options take; a longer one has its text below it."""
COMMANDS = 58
GENERAL = "Options"
WORDS = "Arguments"
ORDER = (WORDS, MODEL, JOB, CLUSTER, GOAL, OUTPUT, GENERAL)
HELP = "-h, --help"


class Text(click.HelpFormatter):
    """Text of a width that cuts no word and breaks none at a hyphen, of which option names are full."""

    def __init__(self) -> None:
        super().__init__(max_width=WIDEST)

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        self.write("".join(f"{indent}{line}\n" for line in _lines(text, self.width - self.current_indent)))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = NAMES, col_spacing: int = 2) -> None:
        rows = list(rows)
        widest = max((len(name) for name, _text in rows if len(name) <= col_max), default=0)
        column = self.current_indent + widest + col_spacing
        for name, text in rows:
            lines = _lines(text, self.width - column)
            beside = lines.pop(0) if lines and len(name) <= widest else ""
            self.write(f"{'':{self.current_indent}}{name:{widest + col_spacing}}{beside}".rstrip() + "\n")
            self.write("".join(f"{'':{column}}{line}\n" for line in lines))


def page(command: click.Command, ctx: click.Context, *, everything: bool = False) -> str:
    """The help of one command."""
    shown, text = PAGES[command.name or ""], Text()
    with text.section("Examples"):
        text.write_dl(shown.examples, COMMANDS)
    text.write_paragraph()
    text.write_text(" ".join((command.help or "").split()))
    text.write_paragraph()
    text.write_usage(f"zeroplan {command.name}", " ".join(command.collect_usage_pieces(ctx)))
    rows, rare = _rows(command, ctx, shown, everything=everything)
    for title in rows:
        with text.section(title):
            text.write_dl(rows[title])
    text.write_paragraph()
    if command.name in OF_A_JOB:
        text.write_text(SCOPE if everything else SHORT_SCOPE)
    if rare:
        text.write_text(f"{rare} more option{'s' * (rare > 1)}: zeroplan {command.name} {EVERYTHING}")
    return text.getvalue().rstrip("\n")


def front_page(group: click.Command, ctx: click.Context, *, whole: bool = True) -> str:
    """The help of `zeroplan`; less options and scope, it fits a small terminal."""
    text = Text()
    text.write_text((group.help or "") if whole else "Plan a DeepSpeed training run before it starts.")
    if whole:
        text.write_paragraph()
    with text.indentation():
        text.write_dl(FRONT_EXAMPLES, COMMANDS)
    text.write_paragraph()
    widest = max(len(name) for _title, rows in FRONT for name, _summary in rows)
    for title, rows in FRONT:
        text.write_heading(title)
        with text.indentation():
            text.write_dl((f"{name:{widest}}", summary) for name, summary in rows)
    if whole:
        with text.section(GENERAL):
            text.write_dl([*(_row(param, ctx, whole=True) for param in group.params), (HELP, "Show this page.")])
        text.write_paragraph()
        text.write_text(SCOPE)
    else:
        text.write_text(SHORT_SCOPE)
    text.write_text("zeroplan COMMAND --help shows examples and options of one.")
    return text.getvalue().rstrip("\n")


def _rows(
    command: click.Command, ctx: click.Context, shown: Page, *, everything: bool
) -> tuple[dict[str, list[tuple[str, str]]], int]:
    """Parameters by the panel that they name, in order, and how many more there are."""
    panels: dict[str, list[tuple[str, str]]] = {title: [] for title in ORDER}
    params = [param for param in command.params if not getattr(param, "hidden", False)]
    usual = [param for param in params if everything or not shown.usual or param.name in shown.usual]
    for param in usual:
        panels[_title(param)].append(_row(param, ctx, whole=everything))
    last = next((title for title in reversed(ORDER) if panels[title]), GENERAL)
    rare = len(params) - len(usual)
    panels[last].append((HELP, f"Show this page; {EVERYTHING}: all options." if rare else "Show this page."))
    return {title: rows for title, rows in panels.items() if rows}, rare


def _title(param: click.Parameter) -> str:
    if not isinstance(param, click.Option):
        return MODEL if param.name == "word" else WORDS
    return (param.panel if isinstance(param, PanelOption) else "") or GENERAL


def _row(param: click.Parameter, ctx: click.Context, *, whole: bool) -> tuple[str, str]:
    """A parameter as it is typed, and what it is for: its first sentence, unless all is asked for."""
    metavar = param.make_metavar(ctx)
    if not isinstance(param, click.Option):
        text = ARGUMENTS[param.name or ""]
        return metavar.strip("[]"), text if whole else _first(text)
    text = (param.help or "") if whole else _first(param.help or "")
    names = ", ".join(sorted(param.opts, key=len))
    usual = param.default if isinstance(param.default, str) else ""
    return names if param.is_flag or param.count else f"{names} {metavar}", f"{text} [{usual}]" if usual else text


def _first(text: str) -> str:
    sentence, more, _rest = text.partition(". ")
    return sentence + "." * bool(more)


def _lines(text: str, width: int) -> list[str]:
    return TextWrapper(width, break_long_words=False, break_on_hyphens=False).wrap(text)
