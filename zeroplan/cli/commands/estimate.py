"""The options of `zeroplan estimate`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial
from typing import Annotated

import typer

from zeroplan.cli.options import OUTPUT, Json, Quiet, Verbose, with_options
from zeroplan.request.options import Words

Accounting = Annotated[
    str,
    typer.Option(
        "--accounting", metavar="deepspeed|paper", rich_help_panel=OUTPUT,
        help="Whose bytes --json holds (tables show both).",
    ),
]  # fmt: skip


@partial(with_options, positional=True)
def estimate(
    options: Words,
    *,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Draw allocated bytes over a step.", rich_help_panel=OUTPUT)
    ] = False,
    partial: Annotated[
        bool,
        typer.Option(
            "--partial", rich_help_panel=OUTPUT,
            help="Where a part of the job is not planned: what GPUs hold between steps, with no verdict and no time.",
        ),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
    accounting: Accounting = "deepspeed",
) -> None:
    """Memory per GPU and traffic of a strategy, or of ZeRO 0-3 side by side."""
    from zeroplan.cli.estimate import run
    from zeroplan.cli.screen import View

    code = run(options, view=View(json, quiet, verbose), accounting=accounting, timeline=timeline, partial=partial)
    raise typer.Exit(code)
