"""A result on standard output, and its exit code."""

from __future__ import annotations

from typing import NamedTuple

import click

from zeroplan.cli.command import WORDS
from zeroplan.cli.progress import watched
from zeroplan.fit import FITS
from zeroplan.report.depth import BRIEF, EVERYTHING, QUIET
from zeroplan.results.result import Result


class View(NamedTuple):
    """How a result is shown: what was typed of --json, -q, -v and -vv."""

    json: bool = False
    quiet: bool = False
    verbose: int = 0

    @property
    def level(self) -> int:
        """How much of a screen; -q wins."""
        return QUIET if self.quiet else min(BRIEF + self.verbose, EVERYTHING)


def show(result: Result, view: View, *, accept: str | None = None, errors: bool = False) -> int:
    """As a table or as JSON; the exit code. `accept`: as --accept has it. `errors`: tables go to standard error."""
    context = click.get_current_context()
    command = context.info_name or ""  # some of what a screen shows is worked out for it
    if view.json:
        from zeroplan.report import json_objects

        with watched(command):
            content = result.content()
        click.echo(json_objects.dumps(content))
    else:
        from zeroplan.report import console

        result.typed = context.meta[WORDS]
        with watched(command):
            screen = result.screen(view.level)
        console.show(*screen, errors=errors)
    return exit_code(result.verdict, accept)


def exit_code(verdict: str | None, accept: str | None) -> int:
    """1 for what does not fit, and for what is tight unless that is accepted; 0 where no capacity is known."""
    return 0 if verdict in (FITS, None, accept) else 1
