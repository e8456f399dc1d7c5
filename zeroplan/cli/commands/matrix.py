"""The options of `zeroplan matrix`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial
from typing import Annotated

import typer

from zeroplan.cli.options import OUTPUT, Json, Quiet, Verbose, with_options
from zeroplan.request.options import Words


@partial(with_options, positional=True)
def matrix(
    options: Words,
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="text|markdown|csv", help="How it is written.", rich_help_panel=OUTPUT)
    ] = "text",
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Models by strategies, with what each GPU needs: --params 1.3B,7B,13B,70B or --model a,b."""
    from zeroplan.cli.matrix import run
    from zeroplan.cli.screen import View

    raise typer.Exit(run(options, form=form, view=View(json, quiet, verbose)))
