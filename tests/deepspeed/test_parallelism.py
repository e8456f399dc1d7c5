"""Ranks that share a batch, as runtime/config.py:DeepSpeedConfig counts them, and as DeepSpeed itself says here."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from zeroplan.check.check import check_text
from zeroplan.check.finding import ERROR
from zeroplan.check.setting import Setting
from zeroplan.deepspeed.parallelism import data_parallel_size, data_parallel_sizes, indivisible
from zeroplan.errors import ContradictionError
from zeroplan.sources import DEEPSPEED

SEQUENCE, DATA = "sequence_parallel_size", "data_parallel_size"
SHARED = {
    "the whole world": ({}, (8,)),
    "a mesh's data dimension": ({SEQUENCE: 4, DATA: 2}, (2,)),
    "a data size alone, which is passed over": ({DATA: 2}, (8,)),
    "the world over the sequence groups": ({SEQUENCE: 4}, (2,)),
    "a fraction, with which DeepSpeed goes on": ({SEQUENCE: 3}, (8 / 3,)),
    "tensor-parallel ranks are counted too": ({"tensor_parallel": {"autotp_size": 4}}, (8,)),
    "a pipeline's own count as well": ({"pipeline": {"stages": 4}}, (8, 2)),
    "stages that nobody named": ({"pipeline": {"stages": "auto"}}, (8,)),
}
WRONG = {
    "sequence groups of 3": ({SEQUENCE: 3}, SEQUENCE, 2),
    "sequence groups larger than the world": ({SEQUENCE: 16}, SEQUENCE, 8),
    "a mesh larger than the world": ({SEQUENCE: 4, DATA: 4}, DATA, 2),
    "a mesh smaller than the world": ({SEQUENCE: 2, DATA: 2}, DATA, 4),
    "AutoTP of 3": ({"tensor_parallel": {"autotp_size": 3}}, "tensor_parallel.autotp_size", 2),
    "AutoEP of 3": ({"expert_parallel": {"enabled": True, "autoep_size": 3}}, "expert_parallel.autoep_size", 2),
}


@pytest.mark.parametrize(("config", "ranks"), SHARED.values(), ids=SHARED)
def test_ranks_that_share_a_batch(config, ranks):
    assert data_parallel_sizes(config, 8) == ranks


@pytest.mark.parametrize(("config", "path", "instead"), WRONG.values(), ids=WRONG)
def test_sizes_that_the_world_is_not_made_of(config, path, instead):
    found = next(indivisible(config, 8))
    assert (found.path, found.instead) == (path, instead)
    section, _, name = path.rpartition(".")
    mended = {**config, section: {**config[section], name: instead}} if section else {**config, name: instead}
    assert list(indivisible(mended, 8)) == []
    with pytest.raises(ContradictionError, match=f'write "{name}": {instead}$'):
        data_parallel_size(config, 8, "ds_config.json")


def test_sizes_that_fit():
    for config in ({SEQUENCE: 4, DATA: 2}, {SEQUENCE: 8}, {"expert_parallel": {"enabled": False, "autoep_size": 3}},
                   {"expert_parallel": {"enabled": True, "autoep_size": 8}}):  # fmt: skip
        assert list(indivisible(config, 8)) == []
    assert data_parallel_size({SEQUENCE: 4}, 8, "ds_config.json") == 2


@pytest.mark.parametrize("value", [0, -1, "2", 1.5, None])
def test_what_is_no_size_is_an_error(value):
    with pytest.raises(ContradictionError, match="no whole number over 0"):
        data_parallel_size({SEQUENCE: value}, 8, "ds_config.json")


BATCHES = [
    ({SEQUENCE: 4, DATA: 2, "train_batch_size": 2, "train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": 1}, 8),
    ({SEQUENCE: 4, DATA: 2, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1,
      "gradient_accumulation_steps": 1}, 8),
    ({SEQUENCE: 4, "train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}, 8),
    ({SEQUENCE: 4, "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}, 8),
    ({SEQUENCE: 3, "train_batch_size": 1024, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8}, 32),
    ({SEQUENCE: 3, "train_batch_size": 32, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3}, 32),
    ({DATA: 2, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}, 8),
    ({SEQUENCE: 4, DATA: 4, "train_micro_batch_size_per_gpu": 1}, 8),
    ({SEQUENCE: 2, "train_batch_size": 6, "gradient_accumulation_steps": 1}, 8),
]  # fmt: skip
ASKED = """
import json, sys
from tests.check.deepspeed_says import prepare, says
prepare()
print(json.dumps([says({**config, "bf16": {"enabled": True}}, world=world)
                  for config, world in json.load(sys.stdin)]))
"""


def errors(config, gpus):
    text = json.dumps({**config, "bf16": {"enabled": True}})
    return [one for one in check_text("ds.json", text, Setting(gpus=gpus, client_optimizer=True)) if one.severity == ERROR]


def test_deepspeed_says_the_same():
    deepspeed = pytest.importorskip("deepspeed")
    if deepspeed.__version__ != DEEPSPEED:
        pytest.skip(f"compared with {DEEPSPEED}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DS_BUILD_OPS": "0"}
    ran = subprocess.run([sys.executable, "-c", ASKED], cwd=ROOT, env=environment, input=json.dumps(BATCHES),
                         capture_output=True, text=True, timeout=600, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    for (config, gpus), said in zip(BATCHES, json.loads(ran.stdout.splitlines()[-1]), strict=True):
        assert bool(errors(config, gpus)) == bool(said), (config, said, errors(config, gpus))


def test_what_check_writes_instead_is_taken():
    for config, gpus in BATCHES:
        for one in errors(config, gpus):
            name, value = json.loads("{" + one.write + "}").popitem()
            assert errors({**config, name: value}, gpus) == [], (config, one.write)
