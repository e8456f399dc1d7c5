"""Checkpointing keeps a layer's input, runs it again when backward asks, and stops when it has what it needs."""

from __future__ import annotations

from tests.autograd.test_engine import TABLE, Heard, X, rows
from zeroplan.autograd.checkpoint import checkpoint
from zeroplan.autograd.elementwise import mul_scalar, tanh
from zeroplan.autograd.tensor import Tensor


def three(x: Tensor) -> Tensor:
    return tanh(tanh(tanh(x)))


def test_only_the_input_is_kept():
    """Without it three results are; with it the input and, as long as the caller has it, the output."""
    memory = Heard()
    plain = three(rows(memory))
    assert memory.allocated == 3 * X
    del plain
    made = checkpoint(memory, three, rows(memory))
    assert memory.allocated == 2 * X
    del made
    assert memory.allocated == 0


def test_two_layers_keep_two_inputs():
    memory = Heard()
    made = checkpoint(memory, three, checkpoint(memory, three, rows(memory)))
    assert memory.allocated == 3 * X  # input of the first, of the second, output
    del made


def test_backward_runs_the_layer_again():
    """The output's gradient; three results again; then three gradients and the table's, as without it."""
    memory = Heard()
    loss = checkpoint(memory, three, rows(memory))
    made = memory.backward(loss)
    assert [size for size, _live in made] == [X] * 7 + [TABLE]
    assert made[3] == (X, 6 * X)  # input, output, gradient, and three results
    assert memory.allocated == X


def test_the_second_run_stops_at_the_last_tensor_saved():
    """tanh keeps its result, the two scalings after it keep nothing: one result is made again, not three."""
    memory = Heard()

    def layer(x: Tensor) -> Tensor:
        return mul_scalar(mul_scalar(tanh(x)))

    loss = checkpoint(memory, layer, rows(memory))
    made = memory.backward(loss)
    gradients, again = 4, 1  # of the loss, of two scalings, of tanh
    assert [size for size, _live in made] == [X] * (gradients + again) + [TABLE]


def test_what_was_made_again_dies_with_its_node():
    """When the table's gradient is made, the loss, its gradient and one other are left; the layer's input is not."""
    memory = Heard()
    loss = checkpoint(memory, three, rows(memory))
    assert memory.backward(loss)[-1] == (TABLE, 3 * X + TABLE)
