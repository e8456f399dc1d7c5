"""The options of `zeroplan compare`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial

import typer

from zeroplan.cli.options import Json, Quiet, Verbose, with_options
from zeroplan.request.options import Words


@partial(with_options, positional=True)
def compare(options: Words, *, json: Json = False, quiet: Quiet = False, verbose: Verbose = 0) -> None:
    """Strategies or GPU counts side by side: give several values, as in --gpus 8,64,512 or --stage 1,2,3."""
    from zeroplan.cli.compare import run
    from zeroplan.cli.screen import View

    raise typer.Exit(run(options, view=View(json, quiet, verbose)))
