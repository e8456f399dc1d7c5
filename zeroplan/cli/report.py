"""`zeroplan report`."""

from __future__ import annotations

from typing import NamedTuple

import click

from zeroplan import api
from zeroplan.cli.progress import watched
from zeroplan.cli.screen import View, exit_code
from zeroplan.deepspeed.files import check_output
from zeroplan.errors import ContradictionError, printable
from zeroplan.request.options import Words
from zeroplan.request.several import cards_named
from zeroplan.results.report import USUAL_NAMES, Report, form_of


class PageOutput(NamedTuple):
    """What was typed: -o, --format, --chart, --force."""

    file: str | None
    form: str | None
    chart: str
    force: bool


def run(options: Words, output: PageOutput, *, view: View, target: str, grid: str) -> int:
    """0 with a plan, 1 when nothing fits or a plan is tight and not accepted: the page says so too."""
    if cards_named(options):
        raise ContradictionError("report is of one plan; write one card, or zeroplan recommend for each")
    form = form_of(output.file or "", output.form)
    path = output.file or USUAL_NAMES[form].replace("memory", output.chart)
    if path != "-":
        check_output(path, force=output.force, usual=USUAL_NAMES[form])
    with watched("report"):
        page = Report(api.recommend(**options, target=target), grid)
        page.write(path, form=form, chart=output.chart, force=output.force)
    accept = options.get("accept")
    if path == "-":
        return exit_code(page.verdict, accept)
    click.echo(page.answer)
    if not view.quiet:
        click.echo(f"written: {printable(path)}")
    return exit_code(page.verdict, accept)
