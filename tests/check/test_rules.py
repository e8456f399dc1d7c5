"""Every rule: its bad example is found by it and by no other rule of its severity, its good one by none that refuses."""

from __future__ import annotations

import re

import pytest

from tests.check.examples import found
from zeroplan.check.finding import ADVICE, ERROR, SEVERITIES
from zeroplan.check.rules import ROOMS, RULES

each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


@each_rule
def test_bad_example_is_found_by_its_rule_alone(rule):
    findings = [one for one in found(rule.bad) if one.severity != ADVICE or one.rule == rule.id]
    assert {one.rule for one in findings} == {rule.id}
    assert all(one.message and "\n" not in one.message + one.write for one in findings)


@each_rule
def test_good_example_is_clean(rule):
    assert [one for one in found(rule.good) if one.severity != ADVICE or one.rule == rule.id] == []


@each_rule
def test_rule_is_told_whole(rule):
    assert re.fullmatch(r"ZP[1-9]\d\d", rule.id)
    assert rule.severity in SEVERITIES
    assert rule.title
    assert rule.evidence
    assert rule.link.startswith("https://")


def test_no_id_is_given_twice():
    assert sum(len(room.RULES) for room in ROOMS) == len(RULES)


def test_severities_are_known():
    assert {rule.severity for rule in RULES.values()} == set(SEVERITIES)
    assert SEVERITIES[0] == ERROR
