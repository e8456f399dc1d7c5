"""`zeroplan schema`."""

from __future__ import annotations

import json

from zeroplan.deepspeed.files import write_whole
from zeroplan.deepspeed.schema import schema


def run(output: str | None, *, force: bool) -> int:
    """To a file, or to standard output."""
    write_whole(output or "-", json.dumps(schema(), indent=2, ensure_ascii=False) + "\n", force=force)
    return 0
