"""The rules by which torch's autograd keeps and frees tensors, each with its arithmetic."""

from __future__ import annotations

import pytest

from zeroplan.autograd.elementwise import add, mul, mul_scalar, tanh, to
from zeroplan.autograd.engine import Engine
from zeroplan.autograd.graph import parameter
from zeroplan.autograd.log import FREED, MADE
from zeroplan.autograd.memory import READY, Memory
from zeroplan.autograd.products import embedding, linear
from zeroplan.autograd.reductions import cat
from zeroplan.autograd.tensor import Tensor, empty, given
from zeroplan.autograd.views import narrow, view

BF16 = 2
X = 2 * 3 * 8 * BF16
"""Bytes of [2, 3, 8], the input of every test."""
TABLE = 10 * 8 * BF16
"""And of the table that it comes from, and of its gradient."""


class Weight:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


class Heard(Memory):
    """A memory that tells every storage that backward makes: its bytes, and those alive then."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(BF16)

    def backward(self, loss: Tensor) -> list[tuple[int, int]]:
        live, start, made = self.allocated, len(self.log), []
        sizes = {key: of[0] for what, key, *of in self.log if what == MADE}
        Engine().run(loss)
        for what, key, *of in self.log[start:]:
            if what == MADE:
                sizes[key] = of[0]
                live += of[0]
                made.append((of[0], live))
            elif what == FREED:
                live -= sizes[key]
        return made


@pytest.fixture
def memory() -> Heard:
    return Heard()


def rows(memory: Heard, table: Weight | None = None) -> Tensor:
    """[2, 3, 8] that needs a gradient."""
    ids = given(memory, (2, 3), 8)
    return embedding(ids, parameter(memory, table or Weight(10, 8)))


def test_a_storage_lives_as_long_as_something_refers_to_it(memory):
    x = empty(memory, (4, 4), BF16)
    part = narrow(x, 0, 1)
    del x
    assert memory.allocated == 32  # the slice of 8 bytes keeps all 32
    del part
    assert (memory.allocated, memory.max_allocated) == (0, 32)


def test_parameters_and_inputs_are_not_counted(memory):
    ids, weight = given(memory, (2, 3), 8), Weight(10, 8)
    assert parameter(memory, weight) is parameter(memory, weight) is not parameter(memory, Weight(10, 8))
    assert memory.allocated == 0
    del ids


def test_linears_that_share_an_input_keep_it_once(memory):
    """Queries, keys and values of 4 elements a token: three outputs of 2·3·4·2 = 48 bytes, one input of 96."""
    x = rows(memory)
    made = [linear(x, parameter(memory, Weight(4, 8))) for _ in range(3)]
    assert memory.allocated == X + 3 * 48
    del x
    assert memory.allocated == X + 3 * 48
    del made
    assert memory.allocated == 0


def test_a_linear_whose_weight_is_frozen_keeps_no_input(memory):
    """Only the weight's gradient asks for the input."""
    x = rows(memory)
    made = linear(x, given(memory, (4, 8), BF16))
    del x
    assert memory.allocated == 48
    del made


def test_a_product_keeps_each_factor_for_the_other(memory):
    """x·y keeps both; x times cosines, which need no gradient, keeps the cosines alone."""
    x = rows(memory)
    cosines = empty(memory, (2, 3, 8), BF16)
    turned = mul(x, cosines)
    del x, cosines
    assert memory.allocated == 2 * X  # turned, cosines
    both = mul(turned, turned)
    del turned
    assert memory.allocated == 3 * X  # both, turned, cosines
    del both


def test_without_a_graph_nothing_is_kept(memory):
    x = rows(memory)
    with memory.no_grad():
        made = tanh(tanh(x))
    assert made.node is None
    assert memory.allocated == 2 * X  # x and the second result
    assert memory.grad_enabled


def test_gradients_that_meet_are_summed_out_of_place(memory):
    """Alive as each is made: x, the loss and its gradient, which backward's caller holds, are 3X throughout.

    Each branch makes a gradient: 4X, 5X. Their sum is a third: 6X. Beside it alone the table's is made: 4X.
    """
    x = rows(memory)
    loss = add(mul_scalar(x), mul_scalar(x))
    assert memory.allocated == 2 * X
    assert memory.backward(loss) == [(X, 3 * X), (X, 4 * X), (X, 5 * X), (X, 6 * X), (TABLE, 4 * X + TABLE)]


def test_what_a_node_saved_dies_when_it_has_run(memory):
    """Three results of tanh are kept, 3X; the last is the loss, which the caller holds.

    The loss's gradient, held too: 4X. Of the third tanh: 5X. Of the second: 6X; then the third's gradient and the
    second result die: 4X. Of the first: 5X; then the second's gradient and the first result die: 3X are left, the
    loss, its gradient and the first's, beside which the table's is made.
    """
    loss = tanh(tanh(tanh(rows(memory))))
    assert memory.allocated == 3 * X
    assert memory.backward(loss) == [(X, 4 * X), (X, 5 * X), (X, 6 * X), (X, 5 * X), (TABLE, 3 * X + TABLE)]
    assert memory.allocated == X


def ready(memory):
    """Parameters' gradients as they leave."""
    return [event for event in memory.events if event.kind == READY]


def test_the_node_made_last_runs_first(memory):
    first, second = Weight(4, 8), Weight(6, 8)
    memory.events = []
    x = rows(memory)
    loss = cat((linear(x, parameter(memory, first)), linear(x, parameter(memory, second))), -1)
    memory.backward(loss)
    assert [event.identity for event in ready(memory)][:2] == [id(second), id(first)]


def test_a_tied_weight_has_one_gradient_when_both_uses_have_given_theirs(memory):
    """The head's gradient waits for the embedding's; the sum is a third tensor."""
    table = Weight(10, 8)
    memory.events = []
    logits = linear(rows(memory, table), parameter(memory, table))
    made = [size for size, _live in memory.backward(logits)]
    loss = 2 * 3 * 10 * BF16
    assert made == [loss, TABLE, X, TABLE, TABLE]  # logits', the head's, x's, the embedding's, their sum
    (event,) = ready(memory)
    assert event.identity == id(table)


def test_the_gradient_of_a_broadcast_weight_is_summed(memory):
    """A norm's weight of 8 gets a gradient of x's size first, then one of its own, 16 bytes."""
    weight = Weight(8)
    memory.events = []
    x = rows(memory)
    made = [size for size, _live in memory.backward(mul(parameter(memory, weight), x))]
    assert made == [X, X, X, 16, TABLE]  # the loss's, x's, the weight's whole, the weight's, the table's
    assert ready(memory)[0].identity == id(weight)
    assert len(ready(memory)) == 2


def test_a_gradient_has_the_dtype_of_what_it_belongs_to(memory):
    """In fp32 a gradient takes 2X; back through the cast it takes X."""
    loss = to(rows(memory), 4)
    assert [size for size, _live in memory.backward(loss)] == [2 * X, X, TABLE]


def test_a_slice_s_gradient_is_as_large_as_the_whole(memory):
    loss = narrow(rows(memory), -1, 4)
    assert [size for size, _live in memory.backward(loss)] == [X // 2, X, TABLE]


def test_a_view_costs_nothing(memory):
    loss = view(rows(memory), (6, 8))
    assert memory.allocated == X
    assert [size for size, _live in memory.backward(loss)] == [X, TABLE]
