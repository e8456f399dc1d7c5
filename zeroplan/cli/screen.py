"""A result on standard output, and its exit code."""

from __future__ import annotations

import typer

from zeroplan.fit import FITS
from zeroplan.results.result import Result


def show(result: Result, *, json: bool, quiet: bool, accept: str | None = None, errors: bool = False) -> int:
    """As a table or as JSON; the exit code. `accept`: as --accept has it. `errors`: tables go to standard error."""
    if json:
        from zeroplan.report import machine

        typer.echo(machine.dumps(result.content()))
    else:
        from zeroplan.report import console

        screen = result.screen(quiet=quiet)
        console.show(screen.answer, *screen.parts, errors=errors)
    return exit_code(result.verdict, accept)


def exit_code(verdict: str | None, accept: str | None) -> int:
    """1 for what does not fit, and for what is tight unless that is accepted; 0 where no capacity is known."""
    return 0 if verdict in (FITS, None, accept) else 1
