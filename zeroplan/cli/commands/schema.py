"""The options of `zeroplan schema`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer


def schema(
    *,
    of: Annotated[
        str | None,
        typer.Option("--of", metavar="COMMAND", help="Of what this command prints with --json.", show_default=False),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write it ('-': standard output).", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """A JSON Schema of ds_config.json for editors: keys, values, defaults, what was removed or is passed over.

    With --of that of a command's --json: keys, types, meanings and units.
    """
    from zeroplan.cli.schema import run

    raise typer.Exit(run(of, output, force=force))
