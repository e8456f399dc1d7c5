"""`zeroplan compare`: options that hold lists are tried in every combination, side by side."""

from __future__ import annotations

from zeroplan.cli.progress import watched
from zeroplan.cli.screen import View, show
from zeroplan.request.options import Words, stated
from zeroplan.results.compare import compare


def run(options: Words, *, view: View) -> int:
    """0 when something fits, 1 when nothing does."""
    with watched("compare"):
        result = compare(stated(options))
    return show(result, view, accept=options.get("accept"))
