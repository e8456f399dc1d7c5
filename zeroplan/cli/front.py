"""`zeroplan recommend --objective pareto`: plans of which none is both faster and leaner."""

from __future__ import annotations

from zeroplan.cli.goal import Goal
from zeroplan.cli.options import Options
from zeroplan.cli.progress import tell
from zeroplan.cli.recommend import assumed_of, read
from zeroplan.plan import front_of
from zeroplan.results.front import Plans
from zeroplan.sizing import Fewest


def asked(options: Options, goal: Goal, fewest: Fewest | None = None) -> Plans | None:
    """None when nothing fits."""
    request = read(options)
    job = request.job()
    tell(f"searching the front for {job.ranks:,} GPU{'s' if job.ranks > 1 else ''}")
    found = front_of(job, request.fixed, reserve=request.reserve, apart=goal.apart)
    if not found.rows:
        return None
    return Plans(
        found, goal.apart, assumed_of(request, job), request.given, fewest, headroom=request.headroom
    )
