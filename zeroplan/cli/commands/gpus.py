"""The options of `zeroplan gpus`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON


@command(JSON)
def gpus(*, json: bool) -> int:
    """List the GPU presets."""
    from zeroplan.cli import lists

    return lists.gpus(json=json)
