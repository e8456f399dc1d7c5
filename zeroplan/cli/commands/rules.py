"""The options of `zeroplan rules`."""

# As in options.py: annotations stay objects, not strings.
import typer

from zeroplan.cli.options import Json


def rules(*, json: Json = False) -> None:
    """List the rules of `zeroplan check`."""
    from zeroplan.cli.check import rules as listed

    raise typer.Exit(listed(json=json))
