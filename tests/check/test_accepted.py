"""What a team has accepted: comments in a file, a baseline of what was there before."""

from __future__ import annotations

import json

import pytest

TEXT = """{"train_batch_size": 8, // zeroplan: ignore ZP206, ZP1
 "bf16": {"enabled": true},
 // zeroplan: ignore ZP105
 "gradient_cliping": 1.0,
 "zero_optimization": {"stage": 2, "cpu_offload": true}}
"""


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ds.json"
    path.write_text(TEXT, encoding="utf-8")
    return path


def rules(ran):
    return [line.split()[2].rstrip(":") for line in ran.out.splitlines() if ": " in line and "ZP" in line]


def check(zeroplan, *options):
    return zeroplan("check", "ds.json", "--format", "concise", *options)


def test_a_comment_silences_its_line_or_the_next(config, zeroplan):
    """ZP102, of comments, begins with the ZP1 of the first line; the key under the second comment is a misspelt one."""
    assert rules(check(zeroplan)) == ["ZP408", "ZP514"]
    config.write_text(TEXT.replace("ZP105", "ZP2"), encoding="utf-8")
    assert rules(check(zeroplan)) == ["ZP105", "ZP408", "ZP514"]


def test_a_comment_without_rules_silences_all(config, zeroplan):
    config.write_text(TEXT.replace(' "zero_opt', ' // zeroplan: ignore\n "zero_opt'), encoding="utf-8")
    assert rules(check(zeroplan)) == []


def test_a_comment_in_yaml(tmp_path, monkeypatch, zeroplan):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.yaml").write_text("train_batch_size: 8  # zeroplan: ignore ZP206\nzero_optimization: {stage: 2}\n", encoding="utf-8")
    assert rules(zeroplan("check", "ds.yaml", "--format", "concise")) == ["ZP309"]


def test_a_rule_that_there_is_not(config, zeroplan):
    config.write_text(TEXT.replace("ZP105", "ZP999"), encoding="utf-8")
    ran = check(zeroplan)
    assert (ran.code, ran.out) == (2, "")
    assert "ds.json:3: found 'ZP999', expected the id of a rule" in ran.err


def test_a_baseline_accepts_what_was_there(config, zeroplan):
    written = check(zeroplan, "--write-baseline", "baseline.json")
    assert (written.code, "2 findings accepted" in written.err) == (0, True)
    assert check(zeroplan, "--baseline", "baseline.json").code == 0
    config.write_text("\n" + TEXT.replace('"stage": 2', '"stage": 2, "legacy_stage1": true'), encoding="utf-8")
    later = check(zeroplan, "--baseline", "baseline.json")
    assert (later.code, rules(later)) == (1, ["ZP406"])


def test_what_is_mended_is_said(config, zeroplan):
    check(zeroplan, "--write-baseline", "baseline.json")
    config.write_text(TEXT.replace('"cpu_offload": true', '"overlap_comm": true'), encoding="utf-8")
    assert "baseline.json: 2 accepted findings no longer there" in check(zeroplan, "--baseline", "baseline.json").err


def test_a_baseline_holds_from_another_folder(config, zeroplan, tmp_path, monkeypatch):
    check(zeroplan, "--write-baseline", "baseline.json")
    (tmp_path / "ci").mkdir()
    monkeypatch.chdir(tmp_path / "ci")
    assert zeroplan("check", "../ds.json", "--baseline", "../baseline.json").code == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"what": "another"}', '{"what": "a baseline of zeroplan check", "findings": [{}]}'])
def test_what_is_no_baseline_stays(config, zeroplan, tmp_path, text):
    (tmp_path / "mine.json").write_text(text, encoding="utf-8")
    for option in ("--baseline", "--write-baseline"):
        ran = check(zeroplan, option, "mine.json")
        assert (ran.code, ran.out) == (2, "")
        assert "mine.json: found" in ran.err
    assert (tmp_path / "mine.json").read_text(encoding="utf-8") == text


def test_a_baseline_is_json(config, zeroplan, tmp_path):
    check(zeroplan, "--write-baseline", "baseline.json")
    rows = json.loads((tmp_path / "baseline.json").read_text(encoding="utf-8"))["findings"]
    assert rows[0] == {"rule": "ZP408", "file": "ds.json", "path": "zero_optimization.cpu_offload", "count": 1}


def test_why_beside_each_finding(config, zeroplan):
    out = zeroplan("check", "ds.json", "--explain").out
    assert "  why: A deprecated key; runtime/config_utils.py:_process_deprecated_field\n  not in: {" in out
