"""Configs that were never recorded: DeepSpeed, asked now, and check."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.check.deepspeed_draws import draw
from tests.conftest import ROOT
from zeroplan.check.check import check_text
from zeroplan.check.finding import ERROR
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.keys import DEEPSPEED_VERSION

FIRST, COUNT = 900_000, 30


def test_drawn_now():
    deepspeed = pytest.importorskip("deepspeed")
    if deepspeed.__version__ != DEEPSPEED_VERSION:
        pytest.skip(f"compared with {DEEPSPEED_VERSION}")
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
