"""The options of `zeroplan gpus`."""

# As in options.py: annotations stay objects, not strings.
import typer

from zeroplan.cli.options import Json


def gpus(*, json: Json = False) -> None:
    """List the GPU presets."""
    from zeroplan.cli import lists

    raise typer.Exit(lists.gpus(json=json))
