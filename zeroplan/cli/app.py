"""The commands. Each reads a request, calls one function, shows the result and sets the exit code."""

# As in options.py: annotations stay objects, not strings.
from importlib import import_module
from typing import Annotated

import typer

from zeroplan import __version__

FITS, DOES_NOT_FIT, BAD_INPUT = 0, 1, 2
COMMANDS = (
    "estimate", "recommend", "compare", "diff", "matrix", "explain", "check", "rules", "schema", "verify", "observe",
    "calibrate", "models", "gpus", "clusters",
)  # fmt: skip
"""Each a module of `zeroplan.cli.commands` with a function of that name, in the order of the help."""
OF_A_JOB = ("estimate", "recommend", "compare", "diff", "matrix", "explain", "verify", "observe")
SCOPE = (
    "Scope: full training of one text model, every sequence of --seq tokens. Not planned: adapters (LoRA, QLoRA), "
    "frozen or quantized weights, a second model (DPO, PPO), generation, evaluation, images, tensor or sequence "
    "parallelism."
)
"""`zeroplan.specs.scope` says it of a job."""


def app(name: str = "") -> typer.Typer:
    """With no command but this one, where there is one: loading the options of all takes 20 ms."""
    made = typer.Typer(
        name="zeroplan",
        help="Plan a DeepSpeed training run before it starts: what fits, how long a step takes, which ds_config.json.",
        epilog=SCOPE,
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback(invoke_without_command=True)(top)
    for command in (name,) if name in COMMANDS else COMMANDS:
        epilog = SCOPE if command in OF_A_JOB else None
        made.command(epilog=epilog)(getattr(import_module(f"zeroplan.cli.commands.{command}"), command))
    return made


def top(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"zeroplan {__version__}")
        raise typer.Exit(FITS)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
