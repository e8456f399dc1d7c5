"""Plans are no more than one per cent slower than those of a search that enumerated a finer grid by bounds."""

from __future__ import annotations

import json

import pytest

from benchmarks.plans import REFERENCE, SLOWER, beside

ROWS = json.loads(REFERENCE.read_text())["rows"]
"""Plans of commit 0e13aeb for drawn requests."""
EVERY = 9
"""All of them: `python -m benchmarks.plans`."""


@pytest.mark.parametrize("number", range(0, len(ROWS), EVERY))
def test_no_slower(number):
    (one,) = beside([ROWS[number]])
    if one.is_inside:
        assert one.slower <= SLOWER
        assert bool(one.now) >= bool(one.before)
