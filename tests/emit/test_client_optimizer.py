"""Who makes the optimizer: transformers' and Accelerate's own code, run here, and what a plan's README says of it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.emit.plans import candidate
from zeroplan.deepspeed.read import read_config
from zeroplan.deepspeed.write import ds_config
from zeroplan.emit.accelerate import accelerate_yaml
from zeroplan.emit.launch import Launch
from zeroplan.emit.lightning import lightning_trainer
from zeroplan.emit.readme import readme
from zeroplan.emit.trainer import training_arguments
from zeroplan.specs.strategy import Offload

CPU = Offload(device="cpu")
LIBRARIES = ("torch", "transformers", "accelerate", "deepspeed")
live = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in LIBRARIES), reason="the Trainer's libraries are not installed"
)


@live
@pytest.mark.parametrize("section", [True, False])
def test_a_section_wins_over_the_trainer_s_optim(section):
    """transformers integrations/deepspeed.py: DummyOptim beside a section, and `optim` is never looked at."""
    from accelerate.utils import DummyOptim
    from transformers.integrations.deepspeed import deepspeed_optim_sched

    made = object()
    config = {"optimizer": {"type": "AdamW"}} if section else {}
    trainer = SimpleNamespace(create_optimizer=lambda: made, create_scheduler=None)
    found, _schedule = deepspeed_optim_sched(
        trainer, SimpleNamespace(config=config, is_offload=lambda: False), SimpleNamespace(), 10, []
    )
    assert isinstance(found, DummyOptim) == section
    assert (found is made) == (not section)


@live
@pytest.mark.parametrize(("name", "becomes"), [("AdamW", "Adam"), ("SGD", "Adam"), ("Adagrad", "Adagrad")])
def test_accelerate_replaces_an_offloaded_client_optimizer(name, becomes, monkeypatch):
    import torch
    from accelerate.utils.deepspeed import map_pytorch_optim_to_deepspeed
    from deepspeed.ops import adagrad, adam

    class Made:
        def __init__(self, _groups, **settings):
            self.settings = settings

    kinds = {"Adam": type("CpuAdam", (Made,), {}), "Adagrad": type("CpuAdagrad", (Made,), {})}
    monkeypatch.setattr(adam, "DeepSpeedCPUAdam", kinds["Adam"])
    monkeypatch.setattr(adagrad, "DeepSpeedCPUAdagrad", kinds["Adagrad"])
    theirs = getattr(torch.optim, name)([torch.nn.Parameter(torch.ones(2))], lr=1e-3)
    assert type(map_pytorch_optim_to_deepspeed(theirs)) is kinds[becomes]


def client(**changes):
    found = candidate("stage 2, every other layer", 8)
    job = found.job.at(optimizer="adamw", torch_adam=True, client_optimizer=True, **changes)
    return replace(found, job=job)


@pytest.mark.parametrize(("changes", "says", "optim"), [
    ({"update": "fused"}, "torch.optim.AdamW, fused=True", "adamw_torch_fused"),
    ({"update": "foreach"}, "(torch.optim.AdamW)", "adamw_torch"),
    ({"update": "single-tensor"}, "torch.optim.AdamW, foreach=False", "adamw_torch"),
    ({"update": "fused", "offload_optimizer": CPU}, "deepspeed.ops.adam.DeepSpeedCPUAdam", "adamw_torch_fused"),
])  # fmt: skip
def test_a_plan_says_which_optimizer_the_script_makes(changes, says, optim):
    plan = client(**changes)
    text = readme(plan, Launch(plan.job), "deepspeed", [])
    assert f"The script makes the optimizer ({says.strip('()')}" in text
    assert training_arguments(plan.job)["optim"] == optim
    assert "The script makes the optimizer" in accelerate_yaml(plan.job, "ds_config.json")
    assert "made in configure_optimizers" in lightning_trainer(plan.job)


@pytest.mark.parametrize(("update", "params"), [("fused", {"fused": True}), ("single-tensor", {"foreach": False})])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_a_section_s_update_is_written_and_read(kind, update, params):
    section = {"optimizer": kind, "torch_adam": kind == "adamw", "update": update}
    config = ds_config(candidate("stage 2, every other layer", 8).job.at(**section), "deepspeed")
    assert config["optimizer"]["params"].items() >= params.items()
    assert read_config(config, "ds_config.json").fields["update"] == update


def test_a_plan_says_how_the_model_is_loaded():
    built = client(update="fused", built_in="fp32", built_on="gpu")
    assert "loaded with `dtype=torch.float32`, on the GPU" in readme(built, Launch(built.job), "hf", [])
    usual = client(update="fused")
    assert "is loaded with" not in readme(usual, Launch(usual.job), "hf", [])
