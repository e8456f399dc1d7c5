"""The order of comparisons with recorded runs: all those of a run one after the other, and runs of one model together."""

from __future__ import annotations

import json

import pytest

from tests.verify.recorded import RUNS

COMPARED = "tests/verify/test_against_recorded.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A run's job and ledger are then counted once, and one worker of several counts them."""
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
