"""The options of `zeroplan clusters`."""

# As in options.py: annotations stay objects, not strings.
import typer

from zeroplan.cli.options import Json


def clusters(*, json: Json = False) -> None:
    """List the node presets."""
    from zeroplan.cli import lists

    raise typer.Exit(lists.clusters(json=json))
