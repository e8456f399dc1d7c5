"""`zeroplan diff`: which differences between two ds_config.json matter, for a model on a cluster."""

from __future__ import annotations

from zeroplan import api
from zeroplan.cli.progress import watched
from zeroplan.cli.screen import View, show
from zeroplan.request.options import Words


def run(first: str, second: str, options: Words, *, view: View) -> int:
    """0, whatever differs."""
    with watched("diff"):
        result = api.diff(first, second, **options)
    show(result, view)
    return 0
