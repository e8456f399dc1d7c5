"""The order of releases of a package."""

from __future__ import annotations

import re
from functools import cache

PARTS = 3


@cache
def number(release: str) -> tuple[int, ...]:
    """What releases are ordered by: three numbers, of which 0.20 leaves the last to be 0."""
    parts = [int(digits) for digits in re.findall(r"\d+", release)[:PARTS]]
    return (*parts, *[0] * (PARTS - len(parts)))
