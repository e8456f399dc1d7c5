"""Which parameters of a model train."""

from __future__ import annotations

import pytest

from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.model import Model, with_frozen

HIDDEN, WORDS, LAYERS = 64, 1000, 2
GPT2 = {"model_type": "gpt2", "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 4, "n_positions": 32, "vocab_size": WORDS}
"""Its head is the table of words."""


def model() -> Model:
    return model_of(*read_config(dict(GPT2), "case"), name="case", source="case")


def test_all_train_unless_frozen():
    whole = model()
    assert whole.trainable == tuple(range(len(whole.tensors)))
    assert (whole.trainable_parameters, whole.frozen, whole.frozen_parameters) == (whole.parameters, frozenset(), 0)


def test_frozen_by_name():
    """A tied table is one parameter, under the name that it has first."""
    whole = model()
    frozen = with_frozen(whole, ["*.wte.*"])
    assert [tensor.name for tensor in frozen.tensors if not tensor.trainable] == ["transformer.wte.weight"]
    assert frozen.parameters == whole.parameters
    assert frozen.frozen_parameters == WORDS * HIDDEN
    assert frozen.trainable == tuple(range(1, len(whole.tensors)))


def test_trainable_all_the_same():
    """Two norms a layer and one behind them, each a weight and a bias."""
    norms = with_frozen(model(), ["*"], ["*.ln_*"])
    assert norms.trainable_parameters == (2 * LAYERS + 1) * 2 * HIDDEN
    assert norms.largest_trainable.elements == HIDDEN
    assert norms.largest.elements == WORDS * HIDDEN


def test_the_last_word_counts():
    """Freezing again begins anew."""
    assert not with_frozen(with_frozen(model(), ["*.wte.*"]), ["*.no_such_module.*"]).frozen


def test_something_is_left_to_train():
    with pytest.raises(ContradictionError, match="all parameters are frozen"):
        with_frozen(model(), ["*"])


def test_backward_goes_where_something_trains():
    """The last layer alone: backward enters it, the norm and the head behind it, and what these lie in."""
    last = with_frozen(model(), ["*"], [f"*.h.{LAYERS - 1}.*"])
    order = last.profile.execution(frozen=last.frozen)
    entered = {order.modules[hook.module] for hook in order.backward if hook.enters}
    assert f"transformer.h.{LAYERS - 1}.mlp.c_fc" in entered
    assert {"", "transformer", "transformer.ln_f", "lm_head"} <= entered
    assert not any(path.startswith(("transformer.h.0", "transformer.w")) for path in entered)
    assert {last.tensors[index].name.split(".")[2] for index in order.gradients} == {str(LAYERS - 1)}
    left = {order.modules[hook.module] for hook in order.backward if not hook.enters}
    assert f"transformer.h.{LAYERS - 1}.mlp.c_fc" in left
    assert f"transformer.h.{LAYERS - 1}" not in left, "nothing that comes in needs a gradient"


def test_with_checkpointing_the_words_ask_for_a_gradient():
    """transformers has them (enable_input_require_grads), so that every layer runs again."""
    from zeroplan.specs.checkpointing import recomputing

    last = with_frozen(model(), ["*"], [f"*.h.{LAYERS - 1}.*"])
    order = last.profile.execution(frozen=last.frozen, recomputing=recomputing("full"))
    again = {order.modules[hook.module] for hook in order.recomputing if not hook.backward}
    assert {f"transformer.h.{number}.mlp.c_fc" for number in range(LAYERS)} <= again
