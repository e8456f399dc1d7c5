"""A command as click runs it: option names rewritten, errors that name what was typed, and help pages of its own."""

from __future__ import annotations

from typing import Any

import click
from typer.core import TyperCommand, TyperGroup

from zeroplan.cli.aliases import KnownOption, Typed, rewritten
from zeroplan.cli.options import EVERYTHING
from zeroplan.errors import ZeroplanError, printable

TYPED = "zeroplan.typed"
"""Where the context keeps options that were typed by another name."""
WORDS = "zeroplan.words"
"""Where it keeps the command's own words, from which the next one is made."""
HELP_NAMES = ["-h", "--help"]


class Command(TyperCommand):
    """One command of zeroplan."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(click.Option([EVERYTHING], is_flag=True, is_eager=True, expose_value=False, hidden=True,
                                        callback=_show_everything))  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:  # completion reads half a line
            args, ctx.meta[TYPED] = rewritten(args, self.known_options())
            ctx.meta[WORDS] = (str(ctx.info_name), *args)
        return super().parse_args(ctx, args)

    def known_options(self) -> dict[str, KnownOption]:
        """By name as it is typed."""
        options = {name: KnownOption(takes_value=False) for name in HELP_NAMES}
        for each in self.params:
            if isinstance(each, click.Option):
                option = KnownOption(not (each.is_flag or each.count), each.multiple)
                options.update((name, option) for name in (*each.opts, *each.secondary_opts))
        return options

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ZeroplanError as error:
            error.args = (_naming(str(error), ctx.meta.get(TYPED, [])),)
            raise

    def get_help(self, ctx: click.Context) -> str:
        from zeroplan.cli.help import page

        return page(self, ctx)


class Commands(TyperGroup):
    """`zeroplan` itself."""

    def get_help(self, ctx: click.Context) -> str:
        from zeroplan.cli.help import front_page

        return front_page(self, ctx)


def _naming(message: str, typed: list[Typed]) -> str:
    """An error about an option that was typed by another name says that name too."""
    for said in typed:
        if said.option in message and said.name not in message:
            return f"{message} ({printable(said.name)} is {said.option} here)"
    return message


def _show_everything(ctx: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not ctx.resilient_parsing:
        from zeroplan.cli.help import page

        click.echo(page(ctx.command, ctx, everything=True))
        ctx.exit()
