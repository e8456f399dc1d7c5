"""Fresh plans of `zeroplan recommend`, run by DeepSpeed here and now at their true size: accepted, and as predicted.

Where DeepSpeed 0.19.8 is not installed (`pip install 'zeroplan[verify]'`) these are skipped. ZEROPLAN_PLANS sets how many
requests are drawn, ZEROPLAN_SEED where their seeds start.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os

import pytest

from tests.verify.requests import case, drawn
from tests.verify.warm import Warm
from zeroplan.costs.ledger import ledger
from zeroplan.sources import DEEPSPEED
from zeroplan.verify.compare import compare

if any(importlib.util.find_spec(name) is None for name in ("deepspeed", "torch", "transformers")):
    pytest.skip("DeepSpeed is not installed", allow_module_level=True)
if importlib.metadata.version("deepspeed") != DEEPSPEED:
    pytest.skip(f"another DeepSpeed than {DEEPSPEED}", allow_module_level=True)

LIVE = int(os.environ.get("ZEROPLAN_PLANS", "12"))
FIRST = int(os.environ.get("ZEROPLAN_SEED", "10018"))


@pytest.fixture(scope="module")
def warm():
    with Warm() as process:
        yield process


@pytest.mark.parametrize("seed", range(FIRST, FIRST + LIVE))
def test_a_plan_runs_as_predicted(seed, warm):
    """Held bytes, files, traffic and copies are equal, peaks within 1 %."""
    options, job = drawn(seed, small=True)
    run = warm.measure(case(job))
    stopped = run.get("refused") or run.get("failed")
    assert stopped is None, f"{options}: {stopped}"
    assert [row for row in compare(job, ledger(job), run) if not row.holds] == [], options
