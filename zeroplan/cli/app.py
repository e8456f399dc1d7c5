"""The commands. Each reads a request, calls one function, shows the result and sets the exit code."""

from __future__ import annotations

from importlib import import_module

import click

from zeroplan import __version__
from zeroplan.cli.command import HELP_NAMES
from zeroplan.cli.options import PanelOption

FITS, DOES_NOT_FIT, BAD_INPUT = 0, 1, 2
COMMANDS = (
    "ask", "recommend", "report", "estimate", "compare", "matrix", "check", "diff", "trace", "verify", "observe",
    "calibrate", "explain", "rules", "schema", "models", "gpus", "clusters",
)  # fmt: skip
"""Each a module of `zeroplan.cli.commands` with a command of that name, in the order of the help."""


class Commands(click.Group):
    """`zeroplan` itself. It loads the command that is typed: loading the options of all takes 8 ms."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        loaded: click.Command = getattr(import_module(f"zeroplan.cli.commands.{cmd_name}"), cmd_name)
        return loaded

    def get_help(self, ctx: click.Context) -> str:
        from zeroplan.cli.help import front_page

        return front_page(self, ctx)


@click.pass_context
def _top(ctx: click.Context, /, *, version: bool) -> None:
    if version:
        click.echo(f"zeroplan {__version__}")
        ctx.exit(FITS)
    if ctx.invoked_subcommand is None:
        from zeroplan.cli.help import front_page

        click.echo(front_page(ctx.command, ctx, whole=False))


def _complete(ctx: click.Context, option: click.Parameter, shell: str | None) -> None:
    if shell is not None and not ctx.resilient_parsing:
        from zeroplan.cli import completion

        answer = completion.install if option.name == "install_completion" else completion.script
        click.echo(answer(ctx.command, shell))
        ctx.exit()


app = Commands(
    "zeroplan", callback=_top, invoke_without_command=True, context_settings={"help_option_names": HELP_NAMES},
    help="Plan a DeepSpeed training run before it starts: what fits, how long a step takes, which ds_config.json.",
    params=[
        PanelOption(["--version"], is_flag=True, is_eager=True, help="Print the version and stop."),
        PanelOption(["--install-completion"], is_flag=False, flag_value="", metavar="[SHELL]", expose_value=False,
                    callback=_complete, help="Install completion for the current shell."),
        PanelOption(["--show-completion"], is_flag=False, flag_value="", metavar="[SHELL]", expose_value=False,
                    callback=_complete,
                    help="Show completion for the current shell, to copy it or customize the installation."),
    ],
)  # fmt: skip
