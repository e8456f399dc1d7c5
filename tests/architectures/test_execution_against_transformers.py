"""The order of execution, against transformers' own models under DeepSpeed's own hooks.

ZEROPLAN_EXECUTIONS sets the number of configs a family (6 unless set); ZEROPLAN_RECORD=1 writes
execution_reference.json anew.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from tests.architectures import execution_reference
from zeroplan.architectures.execution import execution
from zeroplan.architectures.registry import FAMILIES

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
transformers = pytest.importorskip("transformers")
if transformers.__version__ != "5.23.0":
    pytest.skip(f"transformers {transformers.__version__}, not 5.23.0", allow_module_level=True)
recorder = pytest.importorskip("tests.architectures.execution_recorder")

pytestmark = pytest.mark.filterwarnings("ignore")
DRAWS = int(os.environ.get("ZEROPLAN_EXECUTIONS", "6"))
KEPT = 2  # configs a family in the reference


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_draws(family: str) -> None:
    compared = 0
    for config, mine, theirs in islice(recorder.runnable(family), DRAWS):
        for found in theirs:
            assert execution(mine) == found, config
        compared += 1
    assert compared == DRAWS


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_bfloat16_runs_in_the_same_order(family: str) -> None:
    ((config, mine, theirs),) = islice(recorder.runnable(family, torch.bfloat16), 1)
    assert execution(mine) == theirs[0], config


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_reference(family: str) -> None:
    rows = [row for row in execution_reference.read() if row[0]["model_type"] == family]
    if os.environ.get("ZEROPLAN_RECORD"):
        drawn = (
            (config, theirs[0]) for config, _mine, theirs in recorder.runnable(family) if recorder.layers(config) <= 2
        )
        rows = list(islice(drawn, KEPT))
        others = [row for row in execution_reference.read() if row[0]["model_type"] != family]
        execution_reference.write(sorted(others + rows, key=lambda row: str(row[0]["model_type"])))
    assert len(rows) == KEPT
    for config, found in rows:
        assert recorder.recorded(config)[0] == found
