"""`zeroplan estimate`."""

from __future__ import annotations

from zeroplan import api
from zeroplan.cli.progress import watched
from zeroplan.cli.screen import View, show
from zeroplan.request.options import Words
from zeroplan.results.estimate import check_view


def run(options: Words, *, view: View, accounting: str, timeline: bool, partial: bool) -> int:
    """0 when something fits (or nothing could fail), 1 when nothing does, or is tight and not accepted."""
    check_view(accounting, timeline=timeline)
    with watched("estimate"):
        whose = accounting if view.json else "deepspeed"  # tables show both
        result = api.estimate(**options, accounting=whose, timeline=timeline, partial=partial)
        result.count()
    return show(result, view, accept=options.get("accept"))
