"""The options of `zeroplan schema`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer


def schema(
    *,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write it ('-': standard output).", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """A JSON Schema of ds_config.json for editors: keys, values, defaults, what was removed or is passed over."""
    from zeroplan.cli.schema import run

    raise typer.Exit(run(output, force=force))
