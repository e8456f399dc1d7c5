"""`zeroplan matrix`: models by strategies."""

from __future__ import annotations

import click

from zeroplan import api
from zeroplan.cli.progress import watched
from zeroplan.cli.screen import View, exit_code, show
from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.request.options import Words

FORMATS = ("text", "markdown", "csv")


def run(options: Words, *, form: str, view: View) -> int:
    """0 when something fits (or nothing could fail), 1 when nothing does."""
    if form not in FORMATS:
        raise QuantityError(f"--format: found {shown(form)}, expected {', '.join(FORMATS)}; write --format markdown")
    if view.json and form != "text":
        raise ContradictionError(f"--json and --format {form} both say what is printed; keep one")
    with watched("matrix"):
        result = api.matrix(**options)
    accept = options.get("accept")
    if form == "text":
        return show(result, view, accept=accept)
    click.echo(result.markdown() if form == "markdown" else result.csv().rstrip("\n"))
    return exit_code(result.verdict, accept)
