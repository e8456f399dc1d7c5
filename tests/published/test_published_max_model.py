"""The largest models that others ran, beside those that `recommend --max-params` finds. The benchmark has all rows."""

from __future__ import annotations

import csv

import pytest

from benchmarks import published_max_model as benchmark

ROWS = {row.name: row for row in benchmark.read()}
QUICK = ["zeroT2m-mp1-base", "zeroT2m-mp1-pos", "dgx2-PyTorch_data_parallel", "zoff-PyTorc-1", "zeroF4-13B", "dgx2-ZeRO-3"]


def test_every_row_is_asked_or_left_out_with_a_reason():
    with benchmark.ASKED.open(encoding="utf-8") as stream:
        assert [row["id"] for row in csv.DictReader(stream)] == list(ROWS)
    assert len(ROWS) == 106
    for row in ROWS.values():
        assert bool(row.asked) != bool(row.left_out), row.name
        assert row.published or row.left_out, row.name
    assert sum(bool(row.asked) for row in ROWS.values()) == 19


def test_every_row_that_is_missed_is_asked():
    assert all(ROWS[name].asked for name in benchmark.reasons())
    assert all(benchmark.reasons().values())


@pytest.mark.parametrize("name", QUICK)
def test_a_published_size_is_met(name):
    (found,) = benchmark.compare([ROWS[name]])
    assert benchmark.kept(found, benchmark.reasons()), found.ratio
