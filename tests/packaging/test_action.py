"""action.yml: its steps run as a runner would run them, with zeroplan as it is installed here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="a runner's bash")


@pytest.fixture
def step(tmp_path):
    """Runs the second step on some inputs; returns code, log and summary."""
    folder = tmp_path / "temp" / "zeroplan" / "bin"
    folder.mkdir(parents=True)
    program = folder / "zeroplan"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zeroplan "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    summary = tmp_path / "summary.md"

    def run(**given):
        inputs = {name: of.get("default", "") for name, of in ACTION["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        check = ACTION["runs"]["steps"][1]
        variables = {name: INPUT.sub(lambda match: inputs[match[1]], text) for name, text in check["env"].items()}
        environment = {**os.environ, **variables, "RUNNER_TEMP": str(tmp_path / "temp"), "GITHUB_STEP_SUMMARY": str(summary),
                       "PYTHONPATH": str(ROOT)}  # fmt: skip
        ran = subprocess.run(["bash", "-e", "-c", check["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout + ran.stderr, summary.read_text(encoding="utf-8") if summary.exists() else ""

    return run


def test_every_input_is_handed_on():
    named = {name for one in ACTION["runs"]["steps"] for text in one["env"].values() for name in INPUT.findall(text)}
    assert named == set(ACTION["inputs"])
    assert not any(INPUT.search(one["run"]) for one in ACTION["runs"]["steps"])  # text of others is no program


def test_findings_stand_in_the_log_and_in_the_summary(step, tmp_path):
    (tmp_path / "ds_config.json").write_text('{"train_batch_size": 8, "bf16": {"enabled": true, "loss_scale": 0}}', encoding="utf-8")
    code, log, summary = step(files="ds_config.json")
    assert code == 1
    assert "::error file=ds_config.json,line=1" in log
    assert "ZP302" in summary


def test_whether_it_fits(step, tmp_path):
    (tmp_path / "a folder").mkdir()
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, '
                                             '"zero_optimization": {"stage": 2}}', encoding="utf-8")  # fmt: skip
    code, log, summary = step(files="ds_config.json", model="llama-3.1-70b", gpus="8", gpu="h100", args="--seq 8192\n--checkpointing full")
    assert code == 1
    assert "ZP901" in log
    assert "ZP901" in summary
    assert step(files="ds_config.json", fail_on="error")[0] == 0


def test_bad_use_ends_the_step(step, tmp_path):
    code, log, summary = step(files="nowhere.json")
    assert (code, summary) == (2, "")
    assert "nowhere.json" in log
