"""`zeroplan estimate`."""

from __future__ import annotations

from zeroplan.cli.options import Options
from zeroplan.cli.progress import watched
from zeroplan.cli.request import read_request
from zeroplan.cli.screen import show
from zeroplan.costs.ledger import ACCOUNTINGS
from zeroplan.errors import QuantityError, shown
from zeroplan.results.estimate import Estimate


def run(options: Options, *, json: bool, quiet: bool, accounting: str, timeline: bool) -> int:
    """0 when something fits (or nothing could fail), 1 when nothing does."""
    _check(accounting, timeline=timeline)
    with watched("estimate"):
        found = asked(options, accounting=accounting if json else "deepspeed", timeline=timeline)  # tables show both
        found.count()
    return show(found, json=json, quiet=quiet)


def asked(options: Options, *, accounting: str = "deepspeed", timeline: bool = False) -> Estimate:
    """What these options ask for."""
    _check(accounting, timeline=timeline)
    request = read_request(options)
    jobs = request.jobs()
    if timeline and len(jobs) > 1:
        raise QuantityError("--timeline: found every stage, expected one; write --stage, as in --stage 2 --timeline")
    one = "stage" in request.settled
    return Estimate(
        jobs, request.assumed_for(jobs), accounting=accounting, one=one, timeline=timeline, headroom=request.headroom
    )


def _check(accounting: str, *, timeline: bool) -> None:
    if accounting not in ACCOUNTINGS:
        raise QuantityError(
            f"--accounting: found {shown(accounting)}, expected {' or '.join(ACCOUNTINGS)}; write --accounting paper"
        )
    if timeline and accounting == "paper":
        raise QuantityError(
            "--timeline: found --accounting paper, expected DeepSpeed's, whose events are drawn; leave out --accounting"
        )
