"""The options of `zeroplan clusters`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON


@command(JSON)
def clusters(*, json: bool) -> int:
    """List the node presets."""
    from zeroplan.cli import lists

    return lists.clusters(json=json)
