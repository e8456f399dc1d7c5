"""The step of a ZenFlow run that is looked at, and what a drawn case may say."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.deepspeed.read import read_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.strategy import Offload, ZenFlow
from zeroplan.verify.cases import draw
from zeroplan.verify.zenflow import looked_at


def run(flow, **section):
    one = job("gpt2", stage=2, offload_optimizer=Offload(device="cpu"), zenflow=flow)
    return looked_at(one, {"zero_optimization": {"stage": 2, "zenflow": {"update_interval": 4, **section}}})


def test_a_run_starts_past_its_warm_up():
    config, steps = run(ZenFlow(4), full_warm_up_rounds=500)
    assert config["zero_optimization"]["zenflow"] == {"update_interval": 4, "full_warm_up_rounds": 0}
    assert steps == 3


@pytest.mark.parametrize(("select", "ran", "steps"), [(4, 4, 3), (5, 8, 4), (100, 8, 4)])
def test_the_last_step_chooses_only_if_every_step_does(select, ran, steps):
    """Micro-steps 0, 8, 16 choose with an interval of 8: steps 1 and 3 of four micro-steps each, and not step 4."""
    config, looked = run(ZenFlow(4, select_interval=select), select_strategy="step", select_interval=select)
    assert config["zero_optimization"]["zenflow"]["select_interval"] == ran
    assert looked == steps


def test_what_cannot_run_is_said():
    one = job("gpt2", stage=3, offload_optimizer=Offload(device="cpu"), zenflow=ZenFlow(4))
    with pytest.raises(ContradictionError, match="stages 1 and 2"):
        looked_at(one, {"zero_optimization": {"stage": 3, "zenflow": {"update_interval": 4}}})


def test_drawn_sections_are_read():
    configs = [draw(seed)["ds_config"] for seed in range(600)]
    flowing = [config for config in configs if "zenflow" in config["zero_optimization"]]
    assert len(flowing) > 10
    assert {config["zero_optimization"]["stage"] for config in flowing} == {1, 2}
    for config in flowing:
        fields = read_config(config, "case").fields
        assert fields["zenflow"].update_interval == config["zero_optimization"]["zenflow"]["update_interval"]
