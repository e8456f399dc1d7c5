"""Values as DeepSpeed's models judge them, and constructors' parameters as the installed packages have them."""

from __future__ import annotations

import inspect
import os

import pytest

from zeroplan.deepspeed.keys import children
from zeroplan.deepspeed.keys.optimizer_classes import CLASS_PARAMS, NOT_CLASSES
from zeroplan.deepspeed.keys.torch_schedules import TORCH_REQUIRED, TORCH_SCHEDULES
from zeroplan.deepspeed.values import fault
from zeroplan.sources import DEEPSPEED

os.environ.setdefault("DS_ACCELERATOR", "cpu")
deepspeed = pytest.importorskip("deepspeed")
from tests.deepspeed.test_keys_against_deepspeed import MODELS, model_of  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(deepspeed.__version__ != DEEPSPEED, reason=f"table is of {DEEPSPEED}"),
]
VALUES = [
    None, True, False, 0, 1, 2, 3, -1, 4, 2.0, 2.5, 1e18, 1e19, 2**70, 0.5, float("inf"), float("nan"), "x", "1", "2.0",
    " 2 ", "+5", "1_000", "1__0", "5.", "1e3", "0.5", "true", "Yes", "auto", "cpu", "none", "nvme", "", [], ["z1"], ["a"],
    [1], {}, {"a": 1}, "symmetric", "torch", "step",
]  # fmt: skip
IN_ANOTHER_ROW = {("fp16.loss_scale", True), ("fp16.loss_scale", False)}
"""Refused by a row of refusals_precision.py."""


@pytest.mark.parametrize("section", MODELS)
def test_every_key_takes_what_its_model_takes(section):
    model, around = model_of(section), {"compute_grad_norm": {"stage": 2}}
    for known in children(section):
        for value in VALUES:
            if (isinstance(value, bool) and (known.path, value) in IN_ANOTHER_ROW) or (
                "object" in known.kind and isinstance(value, dict) and value
            ):
                continue
            try:
                model(**around.get(known.name, {}), **{known.name: value})
                taken = True
            except Exception:
                taken = False
            assert taken == (fault(known, value) == ""), (known.path, value)


def parameters(made):
    return [name for name in inspect.signature(made.__init__).parameters if name not in ("self", "optimizer")]


def test_optimizers_take_these_parameters():
    import torch
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

    own = (FusedAdam, DeepSpeedCPUAdam, FusedLamb, FusedLion, DeepSpeedCPULion, DeepSpeedCPUAdagrad)
    classes = {made.__name__: made for made in own}
    names = [name for name in dir(torch.optim) if name[0].isupper() and name not in NOT_CLASSES]
    classes |= {f"torch.{name}": getattr(torch.optim, name) for name in names}
    assert classes.keys() | {"ZenFlowCPUAdam"} == CLASS_PARAMS.keys()
    given = {"params", "model_params", "adam_w_mode", "adamw_mode", "max_grad_norm"}  # by the engine
    for name, made in classes.items():
        left = {"fp32_optimizer_states"} if name == "DeepSpeedCPUAdam" else set()
        assert set(CLASS_PARAMS[name]) == set(parameters(made)) - given - left, name


def test_schedules_of_torch_take_these_parameters():
    from torch.optim import lr_scheduler

    for name, known in TORCH_SCHEDULES.items():
        signature = inspect.signature(getattr(lr_scheduler, name).__init__).parameters
        names = [part for part in signature if part not in ("self", "optimizer", "verbose")]
        assert set(known) == set(names), name
        required = {part for part in names if signature[part].default is inspect.Parameter.empty}
        assert set(TORCH_REQUIRED.get(name, ())) == required, name
