"""The options of `zeroplan calibrate`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer

from zeroplan.cli.options import Json


def calibrate(
    *,
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE.yaml", help="Write a node's file, which --cluster then reads."),
    ] = None,
    disk: Annotated[str, typer.Option("--disk", metavar="DIR", help="A folder on the disk to measure.")] = ".",
    quick: Annotated[bool, typer.Option("--quick", help="Shorter and smaller, and less exact.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
) -> None:
    """Measure this machine: host and disk, and its GPUs where torch sees any (that part was run on no GPU yet)."""
    from zeroplan.cli.calibrate import run

    raise typer.Exit(run(output=output, disk=disk, quick=quick, force=force, json=json))
