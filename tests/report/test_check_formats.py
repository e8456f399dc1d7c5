"""Findings for other programs: each form is read back by what reads it, or by the rules that its reader publishes."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote, urlparse
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from tests.conftest import REFERENCES
from zeroplan.check.finding import SEVERITIES
from zeroplan.check.rules import RULES

BAD = """{
  "train_batch_size": 8,
  "bf16": {"enabled": true},
  "note|50%": ":,",
  "zero_optimization": {"stage": 2, "stage3_max_live_parameters": 1e9, "overlap_com": true}
}
"""
COLUMN = BAD.splitlines()[4].index('"overlap_com"') + 1
NAME = "a, 100%: b#c d.json"
COMMAND = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)")
SCHEMA = json.loads((REFERENCES / "check" / "sarif_2.1.0.json").read_text(encoding="utf-8"))


@pytest.fixture
def checked(zeroplan, tmp_path, monkeypatch):
    """The output in a form, of a file whose name has what must be escaped."""
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / NAME).write_text(BAD)
    (tmp_path / "clean.json").write_text('{"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": true}}')

    def run(form, *more):
        ran = zeroplan("check", NAME, "clean.json", "--format", form, *more)
        assert (ran.code, ran.err) == (1, "")
        return ran.out

    return run


def unescaped(text):
    """As the runner reads commands (actions/runner, ActionCommand: properties and data)."""
    for escaped, letter in (("%3A", ":"), ("%2C", ","), ("%0D", "\r"), ("%0A", "\n"), ("%25", "%")):
        text = text.replace(escaped, letter)
    return text


def test_github_annotations(checked):
    lines = checked("github").splitlines()
    commands = [COMMAND.fullmatch(line) for line in lines[:-1]]
    assert all(commands), lines
    kinds = [command[1] for command in commands]
    assert kinds == sorted(kinds, key=("error", "warning", "notice").index)
    assert set(kinds) == {"error", "warning", "notice"}
    stated = dict(part.split("=", 1) for part in commands[0][2].split(","))
    assert {name: unescaped(value) for name, value in stated.items()} == {
        "file": NAME, "line": "5", "col": str(COLUMN), "endColumn": str(COLUMN + len('"overlap_com"')),
        "title": "zeroplan ZP108",
    }
    assert unescaped(commands[0][3]).startswith(f"{NAME}:5:{COLUMN}: error ZP108: overlap_com is no key")
    assert lines[-1] == "1 error, 2 warnings, 1 advice in 2 files"


def test_paths_begin_at_the_repository(zeroplan, tmp_path, monkeypatch):
    """A step of a workflow may run in a folder below; and elsewhere there is no workspace."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "x.json").write_text(BAD)
    monkeypatch.chdir(tmp_path / "conf")
    for workspace, name in ((tmp_path, "conf/x.json"), (tmp_path / "other", "x.json")):
        monkeypatch.setenv("GITHUB_WORKSPACE", str(workspace))
        assert f"::error file={name},line=5," in zeroplan("check", "x.json", "--format", "github").out


def test_sarif_is_valid(checked):
    log = json.loads(checked("sarif"))
    jsonschema.Draft4Validator(SCHEMA).validate(log)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    assert all(rule["help"]["text"] and urlparse(rule["helpUri"]).scheme == "https" for rule in rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        location = result["locations"][0]["physicalLocation"]
        uri = urlparse(location["artifactLocation"]["uri"])
        assert (uri.scheme, uri.netloc, uri.fragment, unquote(uri.path)) == ("", "", "", NAME)
        assert location["region"].keys() == {"startLine", "startColumn", "endColumn"}
    assert [result["level"] for result in run["results"]].count("error") == 1


def test_a_fix_in_sarif_mends_the_text(checked):
    (run,) = json.loads(checked("sarif"))["runs"]
    result = next(result for result in run["results"] if result["ruleId"] == "ZP108")
    ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
    (replacement,) = change["replacements"]
    start, length = (replacement["deletedRegion"][name] for name in ("charOffset", "charLength"))
    text = BAD[:start] + replacement["insertedContent"]["text"] + BAD[start + length :]
    assert text == BAD.replace("overlap_com", "overlap_comm")


def test_a_table_of_markdown(checked):
    lines = checked("markdown").splitlines()
    assert lines[0] == "**zeroplan check**: 1 error, 2 warnings, 1 advice in 2 files"
    rows = [re.split(r"(?<!\\)\|", line) for line in lines[2:]]
    assert {len(row) for row in rows} == {7}
    assert len(rows) == 2 + 4
    assert any(r"note\|50%" in row[4] for row in rows)
    assert all(row[1].strip() in SEVERITIES for row in rows[2:])


def test_junit(checked):
    suites = ET.fromstring(checked("junit"))
    assert suites.attrib["tests"] == "2"
    assert suites.attrib["failures"] == "1"
    first, second = suites.iter("testcase")
    assert first.attrib["name"] == NAME
    assert first.find("failure").text.count("\n") == 3
    assert list(second) == []


def test_advice_is_no_failure(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_text('{"train_batch_size": 8, "bf16": {"enabled": true}}')
    ran = zeroplan("check", "x.json", "--format", "junit")
    (case,) = ET.fromstring(ran.out).iter("testcase")
    assert ran.code == 0
    assert [inside.tag for inside in case] == ["system-out"]


@pytest.mark.parametrize("form", ["github", "sarif", "markdown", "junit", "json"])
def test_letters_that_a_form_cannot_hold(zeroplan, tmp_path, monkeypatch, form):
    """Control letters, line ends, marks and surrogates in a key."""
    monkeypatch.chdir(tmp_path)
    key = "\\u0000\\u0001\\ud800\\uffff\\n::error::x|`<b>&]]>%0A"
    (tmp_path / "x.json").write_text(f'{{"train_batch_size": 8, "bf16": {{"enabled": true, "{key}": 1}}}}')
    ran = zeroplan("check", "x.json", "--format", form)
    assert ran.code == 1
    if form == "junit":
        assert "]]>" in next(ET.fromstring(ran.out).iter("failure")).text
    elif form == "sarif":
        jsonschema.Draft4Validator(SCHEMA).validate(json.loads(ran.out))
    elif form == "json":
        assert ran.json["findings"]
    else:
        assert not any(line.startswith("::error::") for line in ran.out.splitlines())
        assert len(ran.out.splitlines()) == {"github": 3, "markdown": 6}[form]
