"""The options of `zeroplan matrix`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial
from typing import Annotated

import typer

from zeroplan.cli.options import OUTPUT, Json, Options, Quiet, with_options


@partial(with_options, positional=True)
def matrix(
    options: Options,
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="text|markdown|csv", help="How it is written.", rich_help_panel=OUTPUT)
    ] = "text",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Models by strategies, with what each GPU needs: --params 1.3B,7B,13B,70B or --model a,b."""
    from zeroplan.cli.matrix import run

    raise typer.Exit(run(options, form=form, json=json, quiet=quiet))
