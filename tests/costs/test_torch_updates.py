"""What an optimizer's update copies, by class and implementation: torch's and transformers' own, run here on the CPU, and
a report of a run that ran out of memory in torch's Adam.
"""

from __future__ import annotations

import importlib.util
import weakref
from collections import Counter

import pytest

from tests.jobs import job
from tests.verify.recorded import RECORDED, job_of
from zeroplan.costs.deepspeed.optimizer_states import temporaries
from zeroplan.costs.ledger import ledger
from zeroplan.ledger import less_activations, total
from zeroplan.specs.strategy import Offload

GIB = 2**30
UPDATES = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single-tensor": {"foreach": False}}
SIZES = ((100_000,), (100_000, 300_000, 50_000), (300_000, 100_000))
# Class of torch.optim, its settings, and what a strategy says of it.
CLASSES = [
    ("AdamW", {"weight_decay": 0.01}, {"optimizer": "adamw", "torch_adam": True, "weight_decay": 0.01}),
    ("AdamW", {"amsgrad": True}, {"optimizer": "adamw", "torch_adam": True, "amsgrad": True}),
    ("Adam", {}, {"optimizer": "adam", "torch_adam": True}),
    ("SGD", {}, {"optimizer": "sgd"}),
    ("SGD", {"weight_decay": 0.01}, {"optimizer": "sgd", "weight_decay": 0.01}),
    ("SGD", {"momentum": 0.9}, {"optimizer": "sgd-momentum"}),
]  # fmt: skip
L2 = ("Adam", {"weight_decay": 0.01},
      {"optimizer": "adam", "torch_adam": True, "weight_decay": 0.01, "decoupled_decay": False})  # fmt: skip
ADAGRAD = ("Adagrad", {}, {"optimizer": "adagrad"})


def copied(optimizer, parameters):
    """Elements of fp32 alive at most in the third step, beside parameters, gradients and states."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Live(TorchDispatchMode):
        def __init__(self, known):
            super().__init__()
            self.now = self.most = 0
            self.live = {tensor.untyped_storage()._cdata for tensor in known}

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            for tensor in made if isinstance(made, list | tuple) else [made]:
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self.live:
                    storage = tensor.untyped_storage()
                    self.live.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(storage, self.died, storage._cdata, storage.nbytes())
            return made

        def died(self, key, size):
            self.live.discard(key)
            self.now -= size

    for step in range(3):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        if step < 2:
            optimizer.step()
    states = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    with Live([*parameters, *(parameter.grad for parameter in parameters), *states]) as live:
        optimizer.step()
    return live.most // 4


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize(("kind", "settings", "says"), [*CLASSES, L2, ADAGRAD])
def test_torch_copies_what_is_counted(kind, settings, says, update, sizes):
    import torch

    if (kind, update) == ("Adagrad", "fused"):
        pytest.skip("the plan knows none")
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in sizes]
    found = copied(getattr(torch.optim, kind)(parameters, lr=1e-3, **settings, **UPDATES[update]), parameters)
    counted = temporaries(job("llama-3.2-1b", stage=2, update=update, **says), sizes)
    assert found == pytest.approx(counted, abs=16)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("shapes", [*SIZES, ((300, 400), (700, 200), (50,))])
def test_adafactor_copies_what_is_counted(shapes):
    """Flat partitions, and matrices, whose rows and columns it sums beside."""
    import torch
    from transformers.optimization import Adafactor

    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    optimizer = Adafactor(parameters, lr=1e-3, scale_parameter=False, relative_step=False)
    counted = temporaries(job("llama-3.2-1b", stage=2, optimizer="adafactor"), [p.numel() for p in parameters])
    assert copied(optimizer, parameters) == pytest.approx(counted, rel=0.01)


LLAMA_2_7B = {"gpus": 8, "seq": 1024, "stage": 2, "precision": "fp16", "checkpointing": "full", "overlap_comm": True,
              "torch_adam": True}  # fmt: skip


def test_a_report_of_llama_2_7b_on_8_v100():
    """hiyouga/LlamaFactory#1221: 28.28 GiB allocated, then 3.14 more fail in torch's Adam, at
    `denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)`.

    6,738,415,616 parameters; 2 bytes of each whole, 12.55 GiB; 12 over 8 ranks, 9.41: 21.96 held. One partition in fp32
    is 3.14 GiB: its gradient and exp_avg_sq.sqrt() make 28.24, the quotient 31.38.
    """
    whole, partition = 2 * 6_738_415_616, 4 * 6_738_415_616 // 8
    one = job("llama-2-7b", update="single-tensor", **LLAMA_2_7B)
    held = total(ledger(one).gpu.resident)
    assert held == pytest.approx(whole + 3 * partition, abs=2**20)
    update = 4 * temporaries(one, [partition // 4])
    assert update == 2 * partition
    assert (held + 2 * partition) / GIB == pytest.approx(28.28, abs=0.05)
    assert partition / GIB == pytest.approx(3.14, abs=0.005)
    assert (held + partition + update) / GIB == pytest.approx(28.28 + 3.14, abs=0.05)
    peak = less_activations(ledger(one).gpu, "step")
    assert peak / GIB == pytest.approx(28.28 + 3.14, abs=0.05)


def test_the_same_job_by_update():
    """Over 21.96 GiB held, with one parameter group: the gradient in fp32 and, tensor by tensor, two copies of a
    partition. One with foreach and none with fused kernels are less than what is there before the update: own
    gradients of whole tensors (at least 1.57 GiB), their flat copy of 1.57, and that in fp32.
    """
    held, fp32 = 21.96, 3.138
    found = {
        update: less_activations(ledger(job("llama-2-7b", update=update, **LLAMA_2_7B)).gpu, "step") / GIB
        for update in UPDATES
    }
    assert found["single-tensor"] == pytest.approx(held + 3 * fp32, abs=0.02)
    assert held + 2 * fp32 <= found["foreach"] < held + 2.05 * fp32
    assert found["fused"] == pytest.approx(found["foreach"], abs=1e-6)


def test_an_offloaded_client_optimizer_is_deepspeeds():
    """Accelerate puts DeepSpeedCPUAdam in its place, whatever the update would have been."""
    away = {"stage": 2, "offload_optimizer": Offload(device="cpu"), "parameter_groups": 2}
    made = job("llama-3.2-1b", torch_adam=True, client_optimizer=True, update="fused", **away)
    own = job("llama-3.2-1b", **away)
    for tier in ("gpu", "host"):
        assert getattr(ledger(made), tier).resident == getattr(ledger(own), tier).resident


def fused(run):
    params = run["case"]["ds_config"].get("optimizer", {}).get("params", {})
    return (run["case"]["optimizer"] or params).get("fused") is True


def test_recorded_runs_keep_fused_steps_on_the_gpu():
    """Against recorded runs of DeepSpeed (tests/verify/test_against_recorded.py has them all): 4 bytes a tensor, and
    none on the host.
    """
    runs = [run for run in RECORDED["optimizers"]["measured"] if fused(run)]
    assert {run["case"]["ds_config"]["zero_optimization"]["stage"] for run in runs} == {0, 1, 2, 3}
    for run in runs:
        counted = ledger(job_of(run["case"]))
        steps = Counter({line.name: line.bytes for line in counted.gpu.resident})["step counters"]
        assert steps > 0
        assert not run["held"].get("host")
        assert not counted.host.resident
