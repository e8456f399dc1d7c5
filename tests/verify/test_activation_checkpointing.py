"""The activation_checkpointing block: what it moves under deepspeed.checkpointing, and that it moves nothing else.

Under transformers' own checkpointing the same job is measured with and without it, at stages 0 to 3, with all of it on.
Runs under DeepSpeed's function are in tests/references/checkpointing_0.19.8.json, and compared with the others in
test_against_recorded; here stands what only they have.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.verify.recorded import RUNS, job_of, label
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import alone
from zeroplan.deepspeed.read import read_config
from zeroplan.ledger import Line
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.strategy import Strategy

BLOCK = "activation_checkpointing"
WITH = [
    run for run in RUNS if BLOCK in run["case"]["ds_config"] and run["case"]["checkpointing"] != "deepspeed"
]
TOLD = [run for run in RUNS if "hosted" in run]


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


def told(run: dict[str, Any]) -> ActivationCheckpointing:
    return job_of(run["case"]).strategy.activation_checkpointing


def test_every_setting_was_measured():
    assert len(TOLD) >= 40
    assert len({run["case"]["model"]["model_type"] for run in TOLD}) >= 20
    assert {run["case"]["ds_config"]["zero_optimization"].get("stage", 0) for run in TOLD} == {0, 1, 2, 3}
    assert {job_of(run["case"]).strategy.precision for run in TOLD} == {"fp32", "bf16", "fp16"}
    ways = {(how.partitions, how.on_host, how.contiguous) for how in map(told, TOLD)}
    alone = {(False, False, False), (True, False, False), (False, True, False)}
    assert ways == alone | {(True, True, False), (True, False, True), (True, True, True)}


@pytest.mark.parametrize("run", TOLD, ids=label)
def test_the_host_holds_as_much(run):
    """One rank's: when forward has returned, to the byte; at most in forward, but for what a copy takes for a moment."""
    job = job_of(run["case"])
    tier = ledger(job).host
    found = sum(one_ranks(entry, job.cluster.gpus_per_node) for entry in tier.worst("forward").lines)
    assert found == run["hosted"]["saved"]
    assert found == pytest.approx(run["hosted"]["forward"], rel=0.005, abs=64)


def one_ranks(entry: Line, ranks: int) -> int:
    """As it was asked for: rounding page-locked blocks up is the allocator's."""
    return entry.symbols.get("size", entry.bytes // ranks)


@pytest.mark.parametrize("run", [run for run in TOLD if told(run).empties], ids=label)
def test_inputs_are_not_kept_twice(run):
    """What the model itself saves, less what is outside of the layers and shared by them, is what a config says."""
    job = job_of(run["case"])
    how, layers = told(run), job.model.shape.layers
    each = job.tokens * job.model.shape.hidden * job.strategy.element_bytes
    counts = {(True, False): how.number if how.contiguous else layers, (True, True): 0, (False, True): min(2, layers)}
    kept = counts[how.partitions, how.on_host] * each + 4 * layers
    plain = alone(job.at(activation_checkpointing=ActivationCheckpointing()))
    assert run["activations"]["saved"] == plain.saved - layers * each + kept


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
