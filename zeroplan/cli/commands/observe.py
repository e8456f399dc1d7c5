"""The options of `zeroplan observe`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer

from zeroplan.cli.options import Json, Quiet, Verbose, with_options
from zeroplan.request.options import Options, Words


@with_options
def observe(
    options: Words,
    *,
    log: Annotated[str, typer.Argument(metavar="LOG", show_default=False)],
    steps: Annotated[
        str | None,
        typer.Option("--steps", metavar="N", help="Optimizer steps that the log covers, where it does not say."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """What DeepSpeed's own log lines say of a run, beside what was predicted for it."""
    from zeroplan.cli.observe import run
    from zeroplan.cli.screen import View

    raise typer.Exit(run(Options(**options), log, steps=steps, view=View(json, quiet, verbose)))
