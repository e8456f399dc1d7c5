"""What a bool that is read from a `meta` tensor says, by who asks."""

import pytest

pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")

import torch

from zeroplan.verify.stand_ins import MetaStandIns
from zeroplan.verify.storages import Storages

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
    with Storages(MetaStandIns()):
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
