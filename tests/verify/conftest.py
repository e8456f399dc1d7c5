"""The order of comparisons with recorded runs: runs of one model together, and what is said of all of them at the end."""

from __future__ import annotations

import json
import os

import pytest

from tests.verify.noted import Noted
from tests.verify.recorded import RUNS

COMPARED = "tests/verify/test_against_recorded.py"
LAST = f"{COMPARED}::test_peaks_with_activations"


@pytest.fixture(scope="session")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Noted:
    """Of all workers together."""
    base = tmp_path_factory.getbasetemp()
    return Noted(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A model is then made once, and by one worker of several; when all runs are read together, most have been counted."""
    models: dict[str, int] = {}
    places = {
        id(run): (models.setdefault(json.dumps(run["case"]["model"]), len(models)), number) for number, run in enumerate(RUNS)
    }

    def place(item: pytest.Item) -> tuple[int, int]:
        given = item.callspec.params.get("run") if hasattr(item, "callspec") else None
        return places.get(id(given), (-1, -1))

    of = [number for number, item in enumerate(items) if item.nodeid.startswith(COMPARED)]
    for number, item in zip(of, sorted((items[number] for number in of), key=place), strict=True):
        items[number] = item
    items.sort(key=lambda item: item.nodeid == LAST)
