"""The options of `zeroplan verify`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, MODEL_WORD, QUIET, VERBOSE, PanelOption, shared_options
from zeroplan.request.options import Options, Words


@command(
    MODEL_WORD, *shared_options(),
    PanelOption(["--real"], is_flag=True, help="Compute with real tensors on the CPU (models that fit into memory)."),
    PanelOption(
        ["--cuda"], is_flag=True,
        help="Compute with real tensors on this machine's GPU (models that fit into it).",
    ),
    PanelOption(["--save"], metavar="FILE", help="Keep the measurement as JSON, with versions and date."),
    PanelOption(["--force"], is_flag=True, help="Replace an existing file."),
    JSON, QUIET, VERBOSE,
)  # fmt: skip
def verify(
    options: Words, save: str | None, *, real: bool, cuda: bool, force: bool, json: bool, quiet: bool, verbose: int
) -> int:
    """Run DeepSpeed itself as one rank of N, without a GPU, and compare it with the prediction."""
    from zeroplan.cli.screen import View
    from zeroplan.cli.verify import run

    view = View(json, quiet, verbose)
    return run(Options(**options), real=real, cuda=cuda, save=save, force=force, view=view)
