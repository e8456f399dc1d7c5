"""`zeroplan estimate`."""

from __future__ import annotations

from zeroplan.cli.options import Options
from zeroplan.cli.progress import watched
from zeroplan.cli.request import read_request
from zeroplan.cli.screen import View, show
from zeroplan.costs.ledger import ACCOUNTINGS
from zeroplan.errors import QuantityError, shown
from zeroplan.results.estimate import Estimate


def run(options: Options, *, view: View, accounting: str, timeline: bool, partial: bool) -> int:
    """0 when something fits (or nothing could fail), 1 when nothing does, or is tight and not accepted."""
    _check(accounting, timeline=timeline)
    with watched("estimate"):
        whose = accounting if view.json else "deepspeed"  # tables show both
        found = asked(options, accounting=whose, timeline=timeline, partial=partial)
        found.count()
    return show(found, view, accept=options.accept)


def asked(
    options: Options, *, accounting: str = "deepspeed", timeline: bool = False, partial: bool = False
) -> Estimate:
    """What these options ask for; `partial`: what still holds of a job of which a part is not planned."""
    _check(accounting, timeline=timeline)
    request = read_request(options, partial=partial)
    jobs = request.jobs()
    if request.unplanned and timeline:
        raise QuantityError("--timeline: found --partial, which has no step; leave out --timeline")
    if request.unplanned:
        nothing = request.cluster._replace(capacity=None, host_memory=None, nvme=None)
        jobs = [job._replace(cluster=nothing) for job in jobs]
    if timeline and len(jobs) > 1:
        raise QuantityError("--timeline: found every stage, expected one; write --stage, as in --stage 2 --timeline")
    one = "stage" in request.fixed
    return Estimate(
        jobs, request.assumed_for(jobs), request.scope, accounting=accounting, one=one, timeline=timeline,
        headroom=request.headroom,
    )  # fmt: skip


def _check(accounting: str, *, timeline: bool) -> None:
    if accounting not in ACCOUNTINGS:
        raise QuantityError(
            f"--accounting: found {shown(accounting)}, expected {' or '.join(ACCOUNTINGS)}; write --accounting paper"
        )
    if timeline and accounting == "paper":
        raise QuantityError(
            "--timeline: found --accounting paper, expected DeepSpeed's, whose events are drawn; leave out --accounting"
        )
