"""The options of `zeroplan matrix`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, MODEL_WORD, OUTPUT, QUIET, VERBOSE, PanelOption, shared_options
from zeroplan.request.options import Words


@command(
    MODEL_WORD, *shared_options(),
    PanelOption(
        ["form", "--format"], default="text", metavar="text|markdown|csv", panel=OUTPUT, help="How it is written."
    ),
    JSON, QUIET, VERBOSE,
)  # fmt: skip
def matrix(options: Words, form: str, *, json: bool, quiet: bool, verbose: int) -> int:
    """Models by strategies, with what each GPU needs: --params 1.3B,7B,13B,70B or --model a,b."""
    from zeroplan.cli.matrix import run
    from zeroplan.cli.screen import View

    return run(options, form=form, view=View(json, quiet, verbose))
