"""The activation_checkpointing block moves nothing in a model of transformers: the same job measured with and without.

The four runs turn all of it on, at stages 0 to 3, under transformers' own checkpointing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.verify.recorded import RUNS
from zeroplan.deepspeed.read import read_config
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.strategy import Strategy

BLOCK = "activation_checkpointing"
WITH = [run for run in RUNS if BLOCK in run["case"]["ds_config"]]


def bare(case: dict[str, Any]) -> str:
    """The case without the block."""
    config = {name: value for name, value in case["ds_config"].items() if name != BLOCK}
    return json.dumps({**case, "ds_config": config}, sort_keys=True)


def test_every_stage_was_measured():
    assert {run["case"]["ds_config"]["zero_optimization"]["stage"] for run in WITH} == {0, 1, 2, 3}
    assert all(all(run["case"]["ds_config"][BLOCK].values()) for run in WITH)
    assert all(run["case"]["checkpointing"] != "none" for run in WITH)


@pytest.mark.parametrize("run", WITH, ids=lambda run: run["case"]["model"]["model_type"])
def test_deepspeed_holds_and_moves_the_same(run):
    others = {bare(other["case"]): other for other in RUNS if BLOCK not in other["case"]["ds_config"]}
    twin = others[bare(run["case"])]
    for what in ("held", "traffic", "peaks", "any_step", "activations", "copies"):
        assert run[what] == twin[what], what


def test_a_config_with_it_says_so():
    base = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
    with_block = read_config({**base, BLOCK: {"partition_activations": True}}, "a config")
    assert [note for note in with_block.notes if "deepspeed.checkpointing.checkpoint" in note]
    without = read_config(base, "a config")
    assert without.notes == ()
    told = ActivationCheckpointing(partitions=True)
    assert with_block.fields == without.fields | {BLOCK: told}
    assert Strategy(**with_block.fields, checkpointing="full").recomputing.inputs == ActivationCheckpointing()
    assert Strategy(**with_block.fields, checkpointing="deepspeed").recomputing.inputs == told
