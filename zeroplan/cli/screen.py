"""A result on standard output, and its exit code."""

from __future__ import annotations

import typer

from zeroplan.results.result import Result


def show(result: Result, *, json: bool, quiet: bool, errors: bool = False) -> int:
    """As a table or as JSON: 1 when nothing that was asked for fits, else 0. `errors`: tables go to standard error."""
    if json:
        from zeroplan.report import machine

        typer.echo(machine.dumps(result.content()))
    else:
        from zeroplan.report import console

        screen = result.screen(quiet=quiet)
        console.show(screen.answer, *screen.parts, errors=errors)
    return 1 if result.fits is False else 0
