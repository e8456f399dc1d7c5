"""The line between `fits` and `tight`, held against runs on either side of it."""

from __future__ import annotations

import csv

import pytest

from benchmarks import verdicts
from benchmarks.published.rows import FILE, FITS, read
from zeroplan.fit import DOES_NOT_FIT
from zeroplan.fit import FITS as FIT

REPORTS = list(csv.DictReader(verdicts.REPORTS.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("row", REPORTS, ids=lambda row: row["id"])
def test_no_report_that_ran_out_is_said_to_fit(row):
    if row["outcome"] == verdicts.ANOTHER_JOB:
        pytest.skip(row["detail"])
    found = verdicts.report(row)
    assert found.verdict != (DOES_NOT_FIT if row["outcome"] == "ran" else FIT)


def test_what_is_promised_of_published_rows():
    rows, timed = verdicts.published(read(FILE)), verdicts.published(read(FITS))
    assert len(rows) > 200
    assert len(timed) == 138
    assert [bound.text for bound in verdicts.bounds([], rows, timed) if not bound.kept] == []
