"""The options of `zeroplan models`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer

from zeroplan.cli.options import Json


def models(
    name: Annotated[str | None, typer.Argument(show_default=False)] = None,
    *,
    json: Json = False,
) -> None:
    """List the model presets, or the tensors of one model."""
    from zeroplan.cli import lists

    raise typer.Exit(lists.models(name, json=json))
