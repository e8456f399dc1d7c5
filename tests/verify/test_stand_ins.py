"""What a bool that is read from a `meta` tensor says, by who asks."""

import pytest

pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")

import torch

from zeroplan.verify.stand_ins import MetaStandIns
from zeroplan.verify.storages import StorageTracker

MASKS = "/site-packages/transformers/masking_utils.py"
ELSEWHERE = "/site-packages/transformers/modeling_rope_utils.py"
OVERFLOW = "/site-packages/deepspeed/runtime/utils.py"


def asked_from(*files):
    """bool(a tensor), in a function of the last file called from one of the file before, and so on."""
    ask = bool
    for file in reversed(files):
        space = {"ask": ask}
        exec(compile("def asks(tensor): return ask(tensor)", file, "exec"), space)
        ask = space["asks"]
    with StorageTracker(MetaStandIns()):
        return ask(torch.empty(3, device="meta").isnan().all())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((OVERFLOW, MASKS), True),  # the engine's forward calls the model's
        ((MASKS,), True),
        ((ELSEWHERE,), False),
        ((OVERFLOW,), False),
        ((MASKS, OVERFLOW), False),
    ],
)
def test_masks_hear_that_nothing_is_masked(files, said):
    assert asked_from(*files) is said


def read_by(file, function):
    """float(a tensor), in a function of this file."""
    space = {"ask": float}
    exec(compile(f"def {function}(tensor): return ask(tensor)", file, "exec"), space)
    with StorageTracker(MetaStandIns()):
        return space[function](torch.empty((), device="meta"))


def test_the_loss_scaler_hears_of_no_overflow():
    """Torch's GradScaler skips the step when a sum of what it reads is not zero; its scale is a number all the same."""
    scaler = torch.amp.GradScaler(device="cpu")
    ran = []

    class Optimizer:
        def step(self):
            ran.append(1)

    with StorageTracker(MetaStandIns()):
        found = {"found_inf_per_device": {"meta": torch.zeros((), device="meta")}}
        scaler._maybe_opt_step(Optimizer(), found)
    assert ran
    assert read_by("/site-packages/torch/amp/grad_scaler.py", "get_scale") == 1.0
