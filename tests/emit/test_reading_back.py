"""Whatever strategy is written, for whomever: read back it is the same."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from tests.emit.strategies import cases, effective, job_of, read_back
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.write import BY_ACCELERATE, ds_config, dumps
from zeroplan.emit.trainer import training_arguments

DRAWS = settings(max_examples=300, deadline=None)


def written(job, target):
    return json.loads(dumps(ds_config(job, target)))


@DRAWS
@given(cases())
def test_for_deepspeed(case):
    job = job_of(case)
    config = written(job, "deepspeed")
    found, stated = read_back(config, job)
    assert effective(found) == effective(job.strategy)
    assert stated.auto == ()


@DRAWS
@given(cases())
def test_for_the_trainer(case):
    """With its TrainingArguments in place of each "auto"."""
    job = job_of(case)
    found, _stated = read_back(written(job, "hf"), job, training_arguments(job))
    assert effective(found) == effective(job.strategy)


@DRAWS
@given(cases())
def test_for_accelerate(case):
    """Two keys are left to the script: they move no byte of what DeepSpeed's own optimizers hold."""
    job = job_of(case)
    found, stated = read_back(written(job, "accelerate"), job)
    assert effective(found) == effective(job.strategy)
    assert set(stated.auto) <= {"optimizer.params.lr", "optimizer.params.weight_decay"} <= set(BY_ACCELERATE)


@DRAWS
@given(cases())
def test_for_lightning(case):
    """Micro-steps are what is left of the total batch."""
    job = job_of(case)
    config = written(job, "lightning")
    assert "gradient_accumulation_steps" not in config
    found, stated = read_back(config, job)
    each = stated.fields["micro_batch"] * job.ranks
    assert stated.train_batch_size % each == 0
    assert effective(found._replace(grad_accum=stated.train_batch_size // each)) == effective(job.strategy)
    assert stated.auto == ()


@pytest.mark.parametrize("target", ["hf", "deepspeed", "accelerate", "lightning"])
def test_nothing_that_does_nothing_is_written(target):
    """Each key is in the table and read at the stage."""

    def leaves(section, prefix=""):
        for name, value in section.items():
            if isinstance(value, dict):
                yield from leaves(value, f"{prefix}{name}.")
            else:
                yield prefix + name

    @DRAWS
    @given(cases())
    def check(case):
        job = job_of(case)
        for path in leaves(written(job, target)):
            assert job.strategy.stage in KEYS[path].stages, path

    check()
