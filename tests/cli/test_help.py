"""Help: examples that run, nothing cut at any width, and every option somewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys

import click
import pytest

from tests.conftest import REFERENCES
from tests.typed import typed
from zeroplan.cli.app import COMMANDS, app
from zeroplan.cli.help_pages import FRONT, FRONT_EXAMPLES, PAGES

COLUMNS = (80, 140)
LOG = REFERENCES / "logs" / "stage_3_0.19.8.log"
EXAMPLES = list(dict.fromkeys(command for page in PAGES.values() for command, _answer in page.examples))
NEEDS_DEEPSPEED = "pip install 'zeroplan[verify]'"


def page(zeroplan, monkeypatch, columns, *words):
    monkeypatch.setenv("COLUMNS", str(columns))
    ran = zeroplan(*words)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.splitlines()


def commands():
    return {name: app.get_command(click.Context(app), name) for name in COMMANDS}


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("words", [(), ("--help",), *((name, asked) for name in COMMANDS for asked in ("--help", "--help-all"))], ids=" ".join)
def test_nothing_is_cut_or_broken(zeroplan, monkeypatch, words, columns):
    lines = page(zeroplan, monkeypatch, columns, *words)
    assert all(len(line) <= columns for line in lines), max(lines, key=len)
    assert not [line for line in lines if line.rstrip().endswith(("…", "...")) and "FILE..." not in line]
    assert not [line for line in lines if re.search(r"\w-$", line)]
    wide = " ".join(" ".join(page(zeroplan, monkeypatch, 1000, *words)).split())
    assert " ".join(" ".join(lines).split()) == wide  # the same words, wherever lines end


def test_alone_it_fits_a_small_terminal(zeroplan, monkeypatch):
    lines = page(zeroplan, monkeypatch, 80)
    assert len(lines) <= 24
    assert sum(line.strip().startswith("zeroplan ") for line in lines) == 4 + 1  # and how to go on
    assert [line[:-1] for line in lines if line.endswith(":")] == ["Plan", "Check", "Understand"]


def test_every_command_is_in_one_group():
    named = [name for _title, rows in FRONT for row, _summary in rows for name in row.split(", ")]
    assert sorted(named) == sorted(COMMANDS) == sorted(PAGES)


def test_the_front_page_asked_for_says_what_is_planned_and_how_to_complete(zeroplan, monkeypatch):
    text = " ".join(page(zeroplan, monkeypatch, 80, "--help"))
    for word in ("Scope: training of one model", "--install-completion", "--show-completion", "--version", "--help"):
        assert word in text


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_begins_with_three_examples_and_is_short(zeroplan, monkeypatch, name):
    lines = page(zeroplan, monkeypatch, 80, name, "--help")
    assert len(lines) <= 40
    assert lines[0] == "Examples:"
    assert [example in line for line, (example, _answer) in zip(lines[1:], PAGES[name].examples, strict=False)] == [True] * 3


@pytest.mark.parametrize("name", COMMANDS)
def test_all_options_are_there_and_the_rest_is_counted(zeroplan, monkeypatch, name):
    found = {opt for param in commands()[name].params for opt in param.opts if opt.startswith("--")} - {"--help-all"}
    everything = "\n".join(page(zeroplan, monkeypatch, 80, name, "--help-all"))
    usual = page(zeroplan, monkeypatch, 80, name, "--help")
    shown = {opt for opt in found if re.search(rf"^  (-\w, )?{opt}\b", "\n".join(usual), re.MULTILINE)}
    assert all(re.search(rf"^  (-\w, )?{opt}\b", everything, re.MULTILINE) for opt in found)
    hidden = len(found - shown)
    assert len(shown) <= 14
    assert (f"{hidden} more option" in usual[-1]) == bool(hidden)
    assert not hidden or usual[-1].endswith(f"zeroplan {name} --help-all")


def test_usual_options_are_options():
    for name, command in commands().items():
        assert set(PAGES[name].usual) <= {param.name for param in command.params}, name


@pytest.mark.parametrize("name", ["estimate", "recommend", "verify"])
def test_a_page_of_a_job_says_what_is_planned(zeroplan, monkeypatch, name):
    assert any("training of one model" in line for line in page(zeroplan, monkeypatch, 80, name, "--help"))


def test_aliases_stay_out_of_it(zeroplan, monkeypatch):
    text = "\n".join(page(zeroplan, monkeypatch, 80, "recommend", "--help-all"))
    for word in ("--batch-size", "--per-device-train-batch-size", "--seq-len", "--num-gpus", "--dtype", "--bf16"):
        assert word not in text


@pytest.mark.parametrize("command", [command for command, _answer in FRONT_EXAMPLES if command not in EXAMPLES] + EXAMPLES)
def test_an_example_runs(command, tmp_path):
    config = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}'
    (tmp_path / "ds_config.json").write_text(config)
    (tmp_path / "a.json").write_text(config)
    (tmp_path / "b.json").write_text(config.replace("2", "3"))
    shutil.copy(LOG, tmp_path / "run.log")
    answers = "\n" * 5 if command == "zeroplan ask" else ""
    if needs_a_process(command):
        code, out, err = in_a_shell(command, tmp_path, answers)
    else:
        code, out, err = typed(shlex.split(command)[1:], tmp_path, 100, answers)
    assert "Traceback" not in err
    if command.startswith(("zeroplan verify", "zeroplan trace")) and importlib.util.find_spec("deepspeed") is None:
        assert NEEDS_DEEPSPEED in err
    elif command.startswith("zeroplan check"):
        assert code in (0, 1), err  # 1: findings
        assert out or "would mend" in err
    elif command.startswith("zeroplan observe"):
        assert code in (0, 1), err  # 1: not as predicted
        assert out
    else:
        assert (code, bool(out or (tmp_path / "ds_config.schema.json").exists())) == (0, True), err


def needs_a_process(command):
    """What a shell does of it, and what measures this machine or DeepSpeed with libraries of its own."""
    return any(sign in command for sign in "|<>;&$*`") or {"calibrate", "verify", "trace"} & {*command.split()}


def in_a_shell(command, tmp_path, answers):
    (tmp_path / "zeroplan").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m zeroplan "$@"\n')
    (tmp_path / "zeroplan").chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1",
        "PYTHONPATH": os.pathsep.join([str(REFERENCES.parent.parent), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=environment, input=answers, check=False)
    return ran.returncode, ran.stdout, ran.stderr
