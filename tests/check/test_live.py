"""Configs that were never recorded: DeepSpeed, asked now, and check."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.check.deepspeed_draws import draw
from tests.check.mending import mended_by
from tests.conftest import ROOT
from zeroplan.check.check import check_text
from zeroplan.check.finding import ERROR
from zeroplan.check.setting import Setting
from zeroplan.sources import DEEPSPEED

FIRST, COUNT = 900_000, 30


def test_drawn_now():
    deepspeed = pytest.importorskip("deepspeed")
    if deepspeed.__version__ != DEEPSPEED:
        pytest.skip(f"compared with {DEEPSPEED}")
    command = [sys.executable, "-m", "tests.check.deepspeed_says", str(FIRST), str(FIRST + COUNT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DS_BUILD_OPS": "0"}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
                         check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    said = json.loads(ran.stdout.splitlines()[-1])
    assert len(said) == COUNT
    for seed, answer in said.items():
        findings = check_text("ds_config.json", json.dumps(draw(int(seed))), Setting(gpus=1, client_optimizer=True))
        found = [one for one in findings if one.severity == ERROR]
        assert bool(found) == bool(answer), (seed, answer, found)


SAME = (
    '"zero_optimization": {"stage": 2, "cpu_offload": true}',
    '"zero_optimization": {"stage": 2, "cpu_offload": false, "cpu_offload_use_pin_memory": true}',
    '"zero_optimization": {"stage": 3, "cpu_offload_param": true}',
    '"zero_optimization": {"stage": 3, "stage3_gather_fp16_weights_on_model_save": true}',
    '"zero_optimization": true',
    '"zero_optimization": false',
    '"bfloat16": {"enabled": true}',
    '"fp16": {"enabled": "false"}, "zero_optimization": {"stage": 2, "overlap_comm": "yes"}',
)


def test_what_runs_runs_the_same_when_it_is_mended():
    """Deprecated and quoted settings: DeepSpeed reads the same values out of both."""
    pytest.importorskip("deepspeed")
    pairs = []
    for text in SAME:
        before = f'{{"train_batch_size": 8, {text}}}'
        found = mended_by(Setting(), before)
        assert found.done, text
        pairs.append([json.loads(before), json.loads(found.text)])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DS_BUILD_OPS": "0"}
    ran = subprocess.run([sys.executable, "-m", "tests.check.deepspeed_reads"], cwd=ROOT, env=environment, check=False,
                         input=json.dumps(pairs), capture_output=True, text=True, timeout=600)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == [[] for _pair in pairs]
