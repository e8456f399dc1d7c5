"""The options of `zeroplan rules`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON


@command(JSON)
def rules(*, json: bool) -> int:
    """List the rules of `zeroplan check`."""
    from zeroplan.cli.check import rules as listed

    return listed(json=json)
