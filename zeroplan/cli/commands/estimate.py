"""The options of `zeroplan estimate`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, MODEL_WORD, OUTPUT, QUIET, VERBOSE, PanelOption, shared_options
from zeroplan.request.options import Words


@command(
    MODEL_WORD, *shared_options(),
    PanelOption(["--timeline"], is_flag=True, panel=OUTPUT, help="Draw allocated bytes over a step."),
    PanelOption(
        ["--partial"], is_flag=True, panel=OUTPUT,
        help="Where a part of the job is not planned: what GPUs hold between steps, with no verdict and no time.",
    ),
    JSON, QUIET, VERBOSE,
    PanelOption(
        ["--accounting"], default="deepspeed", metavar="deepspeed|paper", panel=OUTPUT,
        help="Whose bytes --json holds (tables show both).",
    ),
)  # fmt: skip
def estimate(
    options: Words, *, timeline: bool, partial: bool, json: bool, quiet: bool, verbose: int, accounting: str
) -> int:
    """Memory per GPU and traffic of a strategy, or of ZeRO 0-3 side by side."""
    from zeroplan.cli.estimate import run
    from zeroplan.cli.screen import View

    return run(options, view=View(json, quiet, verbose), accounting=accounting, timeline=timeline, partial=partial)
