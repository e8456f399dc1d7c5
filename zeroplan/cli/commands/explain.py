"""The options of `zeroplan explain`."""

# As in options.py: annotations stay objects, not strings.
from typing import Annotated

import typer

from zeroplan.cli.options import Json, Verbose, with_options
from zeroplan.request.options import Options, Words


@with_options
def explain(
    options: Words,
    *,
    term: Annotated[str, typer.Argument(show_default=False)],
    json: Json = False,
    verbose: Verbose = 0,
) -> None:
    """Formula, symbols with their values, source and assumptions of any number; or a ds_config key."""
    if term.upper().startswith("ZP"):
        from zeroplan.cli.check import explain as explain_rule

        code = explain_rule(term, json=json)
        if code is not None:
            raise typer.Exit(code)
    from zeroplan.cli.explain import run
    from zeroplan.cli.screen import View

    raise typer.Exit(run(Options(**options), term, View(json, verbose=verbose)))
