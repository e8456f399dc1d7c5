"""The options of `zeroplan schema`."""

from __future__ import annotations

from zeroplan.cli.command import command
from zeroplan.cli.options import PanelOption


@command(
    PanelOption(["--of"], metavar="COMMAND", help="Of what this command prints with --json."),
    PanelOption(["-o", "--output"], metavar="FILE", help="Write it ('-': standard output)."),
    PanelOption(["--force"], is_flag=True, help="Replace an existing file."),
)
def schema(of: str | None, output: str | None, *, force: bool) -> int:
    """A JSON Schema of ds_config.json for editors: keys, values, defaults, what was removed or is passed over.

    With --of that of a command's --json: keys, types, meanings and units.
    """
    from zeroplan.cli.schema import run

    return run(of, output, force=force)
