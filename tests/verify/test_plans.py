"""Recorded runs of plans: what was asked is what DeepSpeed ran, at true size, and they cover what is recommended.

plans_0.19.8.json has a request, the ds_config that `recommend --for deepspeed` wrote for it, and what DeepSpeed did with
that on torch's meta device. What it held and moved is compared with the prediction in test_against_recorded.py, as of
every recorded run.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from tests.deepspeed.test_write import leaves
from tests.verify.recorded import RECORDED, RUNS, job_of, label
from tests.verify.requests import CARDS, CHECKPOINTING, FAMILIES, GPU_MEM, GPUS, draw, read
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.read import read_config
from zeroplan.deepspeed.write import ds_config, dumps
from zeroplan.sources import DEEPSPEED
from zeroplan.specs.strategy import Offload
from zeroplan.verify.case import as_measured

PLANS = [run["case"] for run in RUNS if run["of"] == "plans"]


def strategies():
    return [job_of(case).strategy for case in PLANS]


def test_sixty_ran_and_none_was_refused():
    assert len({json.dumps(case["request"]) for case in PLANS}) == len(PLANS) >= 60
    assert RECORDED["plans"]["refused"] == []
    assert RECORDED["plans"]["versions"]["deepspeed"] == DEEPSPEED


def test_they_cover_what_is_recommended():
    found = strategies()
    assert {s.stage for s in found} == {0, 1, 2, 3}
    assert {s.precision for s in found} == {"fp32", "fp16", "bf16"}
    for name in ("offload_optimizer", "offload_param"):
        assert {part.device if part else None for part in (getattr(s, name) for s in found)} == {None, "cpu", "nvme"}
    assert {s.checkpointing for s in found} >= {*CHECKPOINTING}
    assert {s.optimizer for s in found} >= {"adam", "adamw", "sgd", "sgd-momentum", "lion", "adagrad", "lamb", "muon"}
    worlds = {case["world"] for case in PLANS}
    assert {1, 512} <= worlds
    assert len(worlds) >= 10
    assert len({case["model"]["model_type"] for case in PLANS}) >= 18
    assert {case["attention"] for case in PLANS} == {"eager", "sdpa"}
    assert any(case["rank"] > 0 for case in PLANS)
    assert len({dumps(case["ds_config"]) for case in PLANS}) == len(PLANS)


@pytest.mark.parametrize("case", PLANS, ids=lambda case: label({"case": case}))
def test_what_is_asked_is_what_ran(case):
    """Model, world and sequence are the request's, and the config states what it fixes."""
    request = read(case["request"])
    asked, ran = as_measured(request.job(), real=False), job_of(case)
    assert (ran.ranks, ran.cluster.gpus_per_node) == (asked.ranks, asked.cluster.gpus_per_node)
    assert (ran.workload.seq, ran.model.parameters) == (asked.workload.seq, asked.model.parameters)
    for name, value in request.fixed.items():
        found = getattr(ran.strategy, name)
        assert (found.device == value.device if isinstance(value, Offload) else found == value), name
    strategy = ran.strategy
    assert strategy.micro_batch * strategy.grad_accum * ran.ranks == int(case["request"]["global_batch"])
    assert case["ds_config"]["train_batch_size"] == int(case["request"]["global_batch"])


@pytest.mark.parametrize("case", PLANS, ids=lambda case: label({"case": case}))
def test_every_value_is_written_and_would_be_again(case):
    """What ran is what `--for deepspeed` writes for the strategy that it reads from it."""
    assert not read_config(case["ds_config"], "ds_config.json").auto
    for path, value in leaves(case["ds_config"]):
        assert path in KEYS
        assert value != "auto", path
    assert ds_config(job_of(case), "deepspeed") == case["ds_config"]


def test_requests_reach_every_family_and_kind():
    """Before any plan is looked for."""
    assert draw(Random(7), small=False) == draw(Random(7), small=False)
    requests = [draw(Random(seed), small=False) for seed in range(1_500)]
    for name, values in (
        ("model", {name for family in FAMILIES for name in family}), ("gpus", {*GPUS}), ("gpu_mem", {*GPU_MEM}),
        ("gpu", {*CARDS}), ("checkpointing", {*CHECKPOINTING}), ("stage", {*"0123"}), ("offload_param", {"cpu", "nvme"}),
    ):  # fmt: skip
        assert {request[name] for request in requests if name in request} == values
