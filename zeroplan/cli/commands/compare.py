"""The options of `zeroplan compare`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, MODEL_WORD, QUIET, VERBOSE, shared_options
from zeroplan.request.options import Words


@command(MODEL_WORD, *shared_options(), JSON, QUIET, VERBOSE)
def compare(options: Words, *, json: bool, quiet: bool, verbose: int) -> int:
    """Strategies or GPU counts side by side: give several values, as in --gpus 8,64,512 or --stage 1,2,3."""
    from zeroplan.cli.compare import run
    from zeroplan.cli.screen import View

    return run(options, view=View(json, quiet, verbose))
