"""`zeroplan estimate`."""

from __future__ import annotations

import typer

from zeroplan.cli.options import Options
from zeroplan.cli.request import read_request
from zeroplan.costs.course import course
from zeroplan.costs.ledger import ACCOUNTINGS, ledger
from zeroplan.costs.timing.rates import is_timed
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import QuantityError, shown
from zeroplan.fit import fit
from zeroplan.ledger import Detail


def run(options: Options, *, json: bool, quiet: bool, accounting: str, timeline: bool) -> int:
    """0 when something fits (or nothing could fail), 1 when nothing does."""
    if accounting not in ACCOUNTINGS:
        raise QuantityError(
            f"--accounting: found {shown(accounting)}, expected {' or '.join(ACCOUNTINGS)}; write --accounting paper"
        )
    if timeline and accounting == "paper":
        raise QuantityError(
            "--timeline: found --accounting paper, expected DeepSpeed's, whose events are drawn; leave out --accounting"
        )
    request = read_request(options)
    jobs = request.jobs()
    if timeline and len(jobs) > 1:
        raise QuantityError("--timeline: found every stage, expected one; write --stage, as in --stage 2 --timeline")
    assumed = request.assumed_for(jobs)
    detail = Detail.EQUATIONS if len(jobs) == 1 else Detail.KINDS  # what side by side has no room for is not worked out
    ledgers = [ledger(job, accounting if json else "deepspeed", detail=detail) for job in jobs]
    fits = [fit(job, real) for job, real in zip(jobs, ledgers, strict=True)]
    timed = is_timed(jobs[0]) and ledgers[0].accounting != "paper"
    speeds = [speed(job, real) if timed else None for job, real in zip(jobs, ledgers, strict=True)]
    if json:
        from zeroplan.report import machine

        objects = [machine.strategy_object(*parts) for parts in zip(jobs, ledgers, fits, speeds, strict=True)]
        if timeline:
            objects[0]["timeline"] = machine.timeline(course(jobs[0]))
        body = objects[0] if "stage" in request.settled else {"stages": objects}
        typer.echo(machine.dumps({"command": "estimate", **body, "assumed": list(assumed)}))
    else:
        from zeroplan.report import console
        from zeroplan.report import estimate as report

        papers = [ledger(job, "paper") for job in jobs]
        estimates = [report.Estimate(*parts) for parts in zip(jobs, papers, ledgers, fits, speeds, strict=True)]
        parts = [] if quiet else report.details(estimates, assumed)
        if timeline:
            from zeroplan.report.timeline import timeline as drawn

            parts = [*drawn(course(jobs[0]), ledgers[0], console.console().width), *parts]
        console.show(report.answer(estimates), *parts)
    return 1 if all(verdict.fits is False for verdict in fits) else 0
