"""The options of `zeroplan trace`."""

from __future__ import annotations

import click

from zeroplan.cli.command import command
from zeroplan.cli.options import PanelOption, file_names, grouped_options
from zeroplan.request.options import OPTIONS, Options, Words

TAKEN = ("images", "image_size", "image_tokens", "target_seq", "attention", "precision")
"""Options that say what is recorded, or in which ways."""


@command(
    click.Argument(["model"], metavar="MODEL", shell_complete=file_names),
    *grouped_options("options", {name: OPTIONS[name] for name in TAKEN}),
    PanelOption(["-o", "--output"], metavar="FILE", help="Write it (MODEL.trace.json; '-': standard output)."),
    PanelOption(["--force"], is_flag=True, help="Replace an existing file."),
    PanelOption(
        ["--trust-remote-code"], is_flag=True,
        help="Run the model's own Python files, which auto_map of its config.json names. Read them first.",
    ),
    PanelOption(["-v", "--verbose"], is_flag=True, help="Say what is recorded now, on standard error."),
)
def trace(
    model: str, options: Words, output: str | None, *, force: bool, trust_remote_code: bool, verbose: bool
) -> int:  # fmt: skip
    """Record a model that transformers builds, without its weights: a file that every --model takes, without torch."""
    from zeroplan.cli.trace import run

    return run(model, Options(**options), output, force=force, trusts=trust_remote_code, verbose=verbose)
