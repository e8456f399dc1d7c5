"""Default screens: each as it was read last, in at most 24 lines of 100 columns, with the answer first."""

from __future__ import annotations

import re

import pytest

from tests.jobs import job
from tests.report.screens import CASES, FOLDER, WIDTHS, lines, path, shown
from zeroplan.ledger import Checked
from zeroplan.report import rendered, verify
from zeroplan.report.depth import BRIEF

MOST, AT = 24, 100
SIGNS = "=≈~?"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_screen_is_as_it_was_read(case, width):
    assert shown(case, width) == path(case, width).read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_a_screen_has_at_most_24_lines(case):
    _typed, _, text = path(case, AT).read_text(encoding="utf-8").partition("\n")
    assert lines(text, AT) <= MOST


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("case", CASES)
def test_nothing_below_the_answer_is_wider_than_the_terminal_but_what_is_pasted(case, width):
    _typed, _answer, *rest = path(case, width).read_text(encoding="utf-8").splitlines()
    assert [line for line in rest if len(line) > width and not line.startswith("next: ")] == [] or case == "check"


@pytest.mark.parametrize("case", CASES)
def test_each_sign_is_explained(case):
    text = path(case, AT).read_text(encoding="utf-8")
    legend = next((line for line in text.splitlines() if line.endswith("more: -v, -vv")), "")
    above = text.replace(legend, "")
    used = set(re.findall(rf"(?<![\w=]) ([{SIGNS}])(?=\d[\d,.]* ?(?:[KMGT]i?B|ms|s)\b)", above))
    assert used <= {mark for mark in SIGNS if f"{mark} " in legend} or not legend


def test_no_file_is_left_over():
    assert {file.name for file in FOLDER.iterdir()} == {path(case, width).name for case in CASES for width in WIDTHS}


def test_verify_counts_what_holds_and_shows_what_differs():
    """Of 40 numbers one is a byte off where they must be equal; the peak is 1 % off, which is promised."""
    rows = [Checked("held on the GPU", f"line {number}", "bytes", 100, 100, 0.0) for number in range(39)]
    rows += [Checked("held on the GPU", "odd one", "bytes", 101, 100, 0.0), Checked("peaks", "step", "bytes", 101, 100, 0.01)]
    measured = {"versions": {"deepspeed": "0.19.8", "torch": "2.14.1"}, "seconds": 3.0}
    summary = verify.summary(job("gpt2"), rows, measured)
    screen = rendered.screen(summary, [], verify.details(rows, measured, brief=True), (), BRIEF)
    text = rendered.text(screen)
    assert re.search(r"held on the GPU +40 +39", text)
    assert re.search(r"peaks +1 +1", text)
    assert re.search(r"odd one +101 B +100 B +\+1 B +differs", text)
    assert "line 7" not in text
    assert lines(text, AT) <= MOST
