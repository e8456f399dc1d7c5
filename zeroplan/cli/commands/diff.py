"""The options of `zeroplan diff`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer

from zeroplan.cli.options import Json, Quiet, Verbose, with_options
from zeroplan.request.options import Words


@with_options
def diff(
    options: Words,
    *,
    first: Annotated[str, typer.Argument(metavar="A.json", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B.json", show_default=False)],
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Which differences between two ds_config.json (one may be -, standard input) matter for a --model on --gpus: what
    each changes in bytes, calls and seconds by itself, and what all do together. Without a model: the keys that differ
    in meaning, defaults filled in.
    """
    from zeroplan.cli.diff import run
    from zeroplan.cli.screen import View

    raise typer.Exit(run(first, second, options, view=View(json, quiet, verbose)))
