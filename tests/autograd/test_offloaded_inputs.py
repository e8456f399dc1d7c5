"""deepspeed.checkpointing empties an input's own tensor when its layer has run, and fills another in backward."""

from __future__ import annotations

import pytest

from tests.autograd.test_engine import Heard, X, rows
from zeroplan.autograd.elementwise import tanh
from zeroplan.autograd.offloaded_inputs import PLACEHOLDER, InputOffload
from zeroplan.autograd.reentrant import checkpoint_reentrant
from zeroplan.autograd.tensor import Tensor


def run(layers: int, **how: int) -> tuple[Heard, Tensor]:
    """Layers of one tanh, one after the other."""
    memory = Heard()
    emptying = InputOffload(**{"partitions": False, "on_host": False, "buffers": 0, **how})
    x = rows(memory)
    for _layer in range(layers):
        x = checkpoint_reentrant(memory, tanh, x, input_offload=emptying)
    return memory, x


KEPT = [
    ({"partitions": True}, 5 * X),
    ({"on_host": True}, 2 * X),
    ({"partitions": True, "on_host": True}, 0),
    ({"partitions": True, "buffers": 7}, 7 * X),
    ({"partitions": True, "on_host": True, "buffers": 7}, 0),
]


@pytest.mark.parametrize(("how", "kept"), KEPT)
def test_what_stays_of_five_inputs(how: dict[str, int], kept: int):
    """Copies, the last two, nothing, seven buffers; in the place of each input 4 bytes, and the output beside."""
    memory, made = run(5, **how)
    assert memory.allocated == kept + 5 * PLACEHOLDER + X
    memory.backward(made)
    del made
    memory.until_loss = []
    assert memory.allocated == 0


def test_whoever_holds_the_input_loses_it():
    memory = Heard()
    x = rows(memory)
    made = checkpoint_reentrant(memory, tanh, x, input_offload=InputOffload(partitions=True, on_host=True, buffers=0))
    assert x.storage is not None
    assert x.storage.bytes == PLACEHOLDER
    assert memory.allocated == X + PLACEHOLDER
    del made
