"""zero_optimization.zenflow read as a strategy, written again, and refused where nothing counts it."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.deepspeed.read import read_config
from zeroplan.deepspeed.write import ds_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.strategy import Offload, ZenFlow

CPU = Offload(device="cpu")


def read(stage=2, **section):
    zero = {"stage": stage, "offload_optimizer": {"device": "cpu"}, "zenflow": section}
    return read_config({"bf16": {"enabled": True}, "zero_optimization": zero}, "ds_config.json")


def stated(stage=2, **section):
    return read(stage, **section).fields


def test_epochs_are_longer_than_any_step():
    assert stated(update_interval=4)["zenflow"] == ZenFlow(update_interval=4)
    assert stated(update_interval=4, select_strategy="epoch", select_interval=1)["zenflow"].select_interval == 0
    by_step = stated(1, update_interval=4, select_strategy="step", select_interval=8, topk_ratio=0.2)
    assert by_step["zenflow"] == ZenFlow(update_interval=4, topk_ratio=0.2, select_interval=8)


@pytest.mark.parametrize(
    "section", [{}, {"update_interval": "auto"}, {"update_interval": "auto", "overlap_step": True}], ids=str
)
def test_an_interval_that_gradients_decide_is_refused(section):
    """The loss is divided by an accumulation of 0 then (runtime/engine.py:3413)."""
    with pytest.raises(ContradictionError, match="update_interval.* makes it nan"):
        read(**section)


def test_what_it_does_to_the_model_is_said():
    assert ["rows and columns" in note for note in read(update_interval=2).notes] == [True]
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"update_interval": 2}}
    apart = {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": zero}
    assert ["zeros" in note for note in read_config(apart, "ds_config.json").notes] == [False, True]


def test_stage_3_is_not_counted():
    with pytest.raises(ContradictionError, match="zenflow is not planned"):
        read(3, update_interval=2)
    flow = job("gpt2", stage=2, offload_optimizer=CPU, zenflow=ZenFlow(2)).strategy
    assert flow.not_counted == flow.untimed == ("ZenFlow's choice of columns, and their update, in the time of a step",)
    assert flow._replace(stage=3).not_counted == ("zero_optimization.zenflow",)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("select", [0, 3, 9])
def test_what_is_written_reads_the_same(stage, select):
    flow = ZenFlow(update_interval=3, topk_ratio=0.25, select_interval=select, offload=True, overlap_step=stage == 2)
    one = job("gpt2", stage=stage, offload_optimizer=CPU, overlap_comm=True, zenflow=flow)
    config = ds_config(one, "deepspeed")
    assert config["gradient_accumulation_steps"] == 1  # the batch is stated by this, whatever the interval
    assert read_config(config, "ds_config.json").fields["zenflow"] == flow
