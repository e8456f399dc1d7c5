import json
import subprocess
import sys

import pytest

from zeroplan.errors import ContradictionError
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.verify.case import as_measured, case_of
from zeroplan.verify.cases import FAMILIES, WORLDS, draw

DRAWN = [draw(seed) for seed in range(300)]


def test_a_seed_is_a_case():
    assert draw(7) == draw(7) != draw(8)


def test_a_case_is_json():
    assert json.loads(json.dumps(DRAWN)) == DRAWN


def test_draws_reach_every_family_world_and_stage():
    assert {case["model"]["model_type"] for case in DRAWN} == set(FAMILIES)
    assert {case["world"] for case in DRAWN} == set(WORLDS)
    assert {case["ds_config"]["zero_optimization"]["stage"] for case in DRAWN} == {0, 1, 2, 3}


def test_the_measured_rank_is_one_of_the_world():
    assert all(0 <= case["rank"] < case["world"] for case in DRAWN)


def test_the_parent_needs_no_torch():
    program = "import sys, zeroplan.verify.measure, zeroplan.verify.cases; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_ligers_kernels_run_on_a_card_alone():
    options = Options(model="llama-3.2-1b", gpus="8", stage="2", seq="2048", kernels="liger-loss")
    job = as_measured(read_request(options).job(), real=False)
    with pytest.raises(ContradictionError, match="with --cuda alone"):
        case_of(job, None, mode="meta")
    assert case_of(job, None, mode="cuda")["kernels"] == "liger-loss"
