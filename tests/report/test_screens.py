"""Default screens: each as it was read last, in at most 24 lines of 100 columns, with the answer first."""

from __future__ import annotations

import re

import pytest

from tests.report.screens import CASES, FOLDER, WIDTHS, lines, path, shown

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
