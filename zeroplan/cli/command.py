"""A command as click runs it: option names rewritten, errors that name what was typed, and help pages of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from zeroplan.cli.aliases import KnownOption, Typed, rewritten
from zeroplan.cli.options import EVERYTHING, MODEL_WORD, PanelOption, file_names
from zeroplan.errors import ZeroplanError, printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

TYPED = "zeroplan.typed"
"""Where the context keeps options that were typed by another name."""
WORDS = "zeroplan.words"
"""Where it keeps the command's own words, from which the next one is made."""
HELP_NAMES = ["-h", "--help"]


class Command(click.Command):
    """One command of zeroplan."""

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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return super().shell_complete(ctx, incomplete) or file_names(ctx, self, incomplete)


def command(*params: click.Parameter) -> Callable[[Callable[..., int]], Command]:
    """Make a command of a function that returns its exit code, with these parameters in the order of the help."""

    def made(function: Callable[..., int]) -> Command:
        return Command(
            function.__name__, callback=partial(_call, function, params), params=[*params, HELP_ALL],
            help=function.__doc__,
        )  # fmt: skip

    return made


def _call(function: Callable[..., int], params: Sequence[click.Parameter], /, **values: Any) -> int:
    """Call it with its groups of options, each as what was typed of them, among which is a model named by a word."""
    grouped = {each.name: each.group for each in params if isinstance(each, PanelOption) and each.group}
    groups: dict[str, dict[str, Any]] = {group: {} for group in grouped.values()}
    for name, group in grouped.items():
        value = values.pop(name)
        if value is not None and value != ():  # of one that may be repeated
            groups[group][name] = value
    word = values.pop(MODEL_WORD.name, None)
    if word is not None:
        from zeroplan.cli.positional import with_model

        groups["options"] = with_model(groups["options"], word)
    return function(**groups, **values)


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


HELP_ALL = click.Option(
    [EVERYTHING], is_flag=True, is_eager=True, expose_value=False, hidden=True, callback=_show_everything
)
