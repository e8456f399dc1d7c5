"""The options of `zeroplan models`."""

from __future__ import annotations

import click

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, file_names


@command(click.Argument(["name"], required=False, shell_complete=file_names), JSON)
def models(name: str | None, *, json: bool) -> int:
    """List the model presets, or the tensors of one model."""
    from zeroplan.cli import lists

    return lists.models(name, json=json)
