"""The options of `zeroplan observe`."""

from __future__ import annotations

import click

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, QUIET, VERBOSE, PanelOption, file_names, shared_options
from zeroplan.request.options import Options, Words


@command(
    *shared_options(),
    click.Argument(["log"], metavar="LOG", shell_complete=file_names),
    PanelOption(["--steps"], metavar="N", help="Optimizer steps that the log covers, where it does not say."),
    JSON, QUIET, VERBOSE,
)  # fmt: skip
def observe(options: Words, log: str, steps: str | None, *, json: bool, quiet: bool, verbose: int) -> int:
    """What DeepSpeed's own log lines say of a run, beside what was predicted for it."""
    from zeroplan.cli.observe import run
    from zeroplan.cli.screen import View

    return run(Options(**options), log, steps=steps, view=View(json, quiet, verbose))
