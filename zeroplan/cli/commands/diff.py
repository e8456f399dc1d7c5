"""The options of `zeroplan diff`."""

from __future__ import annotations

import click

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, QUIET, VERBOSE, file_names, shared_options
from zeroplan.request.options import Words


@command(
    *shared_options(),
    click.Argument(["first"], metavar="A.json", shell_complete=file_names),
    click.Argument(["second"], metavar="B.json", shell_complete=file_names),
    JSON, QUIET, VERBOSE,
)  # fmt: skip
def diff(options: Words, first: str, second: str, *, json: bool, quiet: bool, verbose: int) -> int:
    """Which differences between two ds_config.json (one may be -, standard input) matter for a --model on --gpus: what
    each changes in bytes, calls and seconds by itself, and what all do together. Without a model: the keys that differ
    in meaning, defaults filled in.
    """
    from zeroplan.cli.diff import run
    from zeroplan.cli.screen import View

    return run(first, second, options, view=View(json, quiet, verbose))
