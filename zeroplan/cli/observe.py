"""`zeroplan observe`."""

from __future__ import annotations

import click

from zeroplan.catalog.files import check_regular
from zeroplan.cli.screen import View
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import QuantityError
from zeroplan.observe.comparison import Predicted, compared
from zeroplan.observe.log import EXPECTED, LARGEST, read_log
from zeroplan.observe.notes import contradictions, notes
from zeroplan.request.cluster import refuse_headroom
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.units import read_integer


def run(options: Options, log_path: str, *, steps: str | None, view: View) -> int:
    """Always 0: what a difference means is the reader's to say."""
    passed = read_integer(steps, "--steps", "100") if steps is not None else None
    refuse_headroom(options, "observe")
    request = read_request(options)
    jobs = request.jobs()
    if len(jobs) > 1:
        raise QuantityError("observe: found no stage, expected the run's; write --stage, or --config ds_config.json")
    job = jobs[0]
    check_regular(log_path, EXPECTED, LARGEST)
    log, real = read_log(log_path), ledger(job)
    timed = job.cluster.gpu is not None and job.strategy.backend != "cpu"
    predicted = Predicted(job, real, speed(job, real) if timed else None)
    rows, said = compared(log, predicted, passed), list(notes(log, predicted, passed))
    wrong = list(contradictions(log, predicted))
    assumed = request.assumed_for(jobs)
    if view.json:
        from zeroplan.report import json_objects
        from zeroplan.schema.measurements import Observe, ObserveRow

        document = Observe(
            scope=json_objects.scope_object(request.scope),
            log=log.path,
            lines=log.lines,
            runs=log.runs,
            first_line=log.first,
            steps=log.steps,
            model=json_objects.model_object(job.model),
            contradictions=wrong,
            observed=[ObserveRow(row=row, difference=row.difference) for row in rows],
            notes=said,
            assumed=assumed,
        )
        click.echo(json_objects.dumps(document))
        return 0
    from zeroplan.report import console, rendered
    from zeroplan.report import observe as report
    from zeroplan.report.depth import BRIEF
    from zeroplan.report.subject import scope_lines

    below = report.details(log, rows, said, brief=view.level == BRIEF)
    head = [*report.contradicted(wrong), *scope_lines(request.scope, quiet=view.quiet)]
    console.show(*rendered.screen(report.summary(job, log, rows), head, below, assumed, view.level))
    return 0
