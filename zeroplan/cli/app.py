"""The commands. Each reads a request, calls one function, shows the result and sets the exit code."""

# As in options.py: annotations stay objects, not strings.
import os
from importlib import import_module
from typing import Annotated

import typer

from zeroplan import __version__
from zeroplan.cli.command import HELP_NAMES, Command, Commands

FITS, DOES_NOT_FIT, BAD_INPUT = 0, 1, 2
COMMANDS = (
    "ask", "recommend", "estimate", "compare", "matrix", "check", "diff", "verify", "observe", "calibrate", "explain",
    "rules", "schema", "models", "gpus", "clusters",
)  # fmt: skip
"""Each a module of `zeroplan.cli.commands` with a function of that name, in the order of the help."""
ALONE = ("", *HELP_NAMES, "--version")
"""Words that no command stands behind."""
COMPLETION = "_ZEROPLAN_COMPLETE"
"""Set by a shell that asks for completions."""


def app(name: str = "") -> typer.Typer:
    """With the commands that the first word needs: loading the options of all takes 20 ms."""
    made = typer.Typer(
        name="zeroplan",
        cls=Commands,
        help="Plan a DeepSpeed training run before it starts: what fits, how long a step takes, which ds_config.json.",
        no_args_is_help=False,
        add_completion=name not in COMMANDS,  # its options stand before a command
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": HELP_NAMES},
    )
    made.callback(invoke_without_command=True)(top)
    for command in _loaded(name):
        made.command(cls=Command)(getattr(import_module(f"zeroplan.cli.commands.{command}"), command))
    return made


def _loaded(word: str) -> tuple[str, ...]:
    """The commands that are needed, where this is the first word; completion asks about all, with none."""
    if word in COMMANDS:
        return (word,)
    return () if word in ALONE and COMPLETION not in os.environ else COMMANDS


def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"zeroplan {__version__}")
        raise typer.Exit(FITS)
    if context.invoked_subcommand is None:
        from zeroplan.cli.help import front_page

        typer.echo(front_page(context.command, context, whole=False))
