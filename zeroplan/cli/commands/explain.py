"""The options of `zeroplan explain`."""

from __future__ import annotations

import click

from zeroplan.cli.command import command
from zeroplan.cli.options import JSON, VERBOSE, shared_options
from zeroplan.request.options import Options, Words


@command(*shared_options(), click.Argument(["term"]), JSON, VERBOSE)
def explain(options: Words, term: str, *, json: bool, verbose: int) -> int:
    """Formula, symbols with their values, source and assumptions of any number; or a ds_config key."""
    if term.upper().startswith("ZP"):
        from zeroplan.cli.check import explain as explain_rule

        code = explain_rule(term, json=json)
        if code is not None:
            return code
    from zeroplan.cli.explain import run
    from zeroplan.cli.screen import View

    return run(Options(**options), term, View(json, verbose=verbose))
