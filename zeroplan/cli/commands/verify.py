"""The options of `zeroplan verify`."""

# As in options.py: annotations stay objects, not strings.
from functools import partial
from typing import Annotated

import typer

from zeroplan.cli.options import Json, Quiet, Verbose, with_options
from zeroplan.request.options import Options, Words


@partial(with_options, positional=True)
def verify(
    options: Words,
    *,
    real: Annotated[
        bool, typer.Option("--real", help="Compute with real tensors on the CPU (models that fit into memory).")
    ] = False,
    cuda: Annotated[
        bool, typer.Option("--cuda", help="Compute with real tensors on this machine's GPU (models that fit into it).")
    ] = False,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Keep the measurement as JSON, with versions and date.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run DeepSpeed itself as one rank of N, without a GPU, and compare it with the prediction."""
    from zeroplan.cli.screen import View
    from zeroplan.cli.verify import run

    view = View(json, quiet, verbose)
    raise typer.Exit(run(Options(**options), real=real, cuda=cuda, save=save, force=force, view=view))
