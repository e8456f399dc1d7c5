"""How activations grow over jobs of every family, as the ledger counts them: the CUDA kernels that torch chooses.

Sizes of the models are those that transformers has run (activations_torch_2.13.json).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.autograd.recorded import read
from tests.autograd.test_properties import differences
from tests.jobs import job
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.arithmetic import round_up
from zeroplan.autograd.equation import terms, value
from zeroplan.costs.closed_forms import counted
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import alone
from zeroplan.formulas import activations, korthikanti, zero_infinity
from zeroplan.ledger import Detail, is_activation, total
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Workload

CONFIGS = {str(case["config"]): case["config"] for case in read()}
FAMILIES = sorted({config["model_type"] for config in CONFIGS.values()})
UNFUSED = {"falcon", "bloom", "gpt_oss"}
"""Families that give every kernel a mask, or have no attention but their own."""
TILE = 32
"""Rows of the memory-efficient kernel's log-sum-exp come in tiles of this."""


def built(config: dict[str, Any]) -> Model:
    """No window bites at the lengths here."""
    open_window = {"sliding_window": 4096} if "sliding_window" in config else {}
    read_as = read_config({**config, **open_window}, "recorded")
    return model_of(*read_as, name="recorded", source="recorded", content=config)


@cache
def known(key: str) -> Model:
    return built(CONFIGS[key])


def job_of(model: Model, seq: int = 24, **strategy: Any) -> Job:
    one = job("gpt2", gpus=2, **strategy)
    return one._replace(model=model, workload=Workload(seq=seq))


def saved(one: Job) -> int:
    found = alone(one)
    assert found is not None
    return found.saved


def kept_row(model: Model) -> int:
    """Bytes of the label that a row of [1, s + 1] has more than [1, s]; an encoder's labels are not cut from one."""
    return 0 if model.family == "bert" and not model.config["is_decoder"] else 8


def by_batch(one: Job, batches: range) -> list[int]:
    return [saved(one.at(micro_batch=batch)) for batch in batches]


keys = st.sampled_from(sorted(CONFIGS)).map(known)
precisions = st.sampled_from(["bf16", "fp16", "fp32"])
attentions = st.sampled_from(["eager", "sdpa"])
few = settings(deadline=None, max_examples=15, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@few
@given(keys, precisions, attentions)
def test_saved_bytes_are_affine_in_the_micro_batch(model, precision, attention):
    """What does not grow is one for all sequences: cosines and sines or positions (s), weights that a norm casts and
    adds one to (h, d), an expert's offset (E) and a router's cast weight (E·h), a kernel's random state, and two fp32
    scalars of the loss. Nothing of it is for a token and its width, or for a pair of tokens.
    """
    one = job_of(model, precision=precision, attention=attention, micro_batch=3)
    two, three, four = by_batch(one, range(2, 5))
    assert four - three == three - two
    found = counted(one)
    constant = {powers: factor for powers, factor in terms(found.bytes).items() if "b" not in dict(powers)}
    assert value(constant, found.sizes) == 3 * two - 2 * three
    allowed = [{}, {"s": 1}, {"h": 1}, {"d": 1}, {"E": 1}, {"E": 1, "h": 1}]
    for powers in constant:
        assert {letter: exponent for letter, exponent in powers if letter != "w"} in allowed


@few
@given(keys.filter(lambda model: model.family not in UNFUSED), precisions)
def test_one_sequence_alone_keeps_the_row_that_its_labels_are_cut_from(model, precision):
    """[1, s] of a padded [1, s + 1] is contiguous and not copied: 8 bytes more. Fused attention has no other exception."""
    one = job_of(model, precision=precision, attention="sdpa", checkpointing="none")
    first, second, third = by_batch(one, range(1, 4))
    assert first == 2 * second - third + kept_row(model)


@few
@given(keys.filter(lambda model: model.family not in {"falcon", "phi3"} and not model.config.get("reorder_and_upcast_attn")))
def test_one_sequence_alone_in_eager_attention(model):
    """Reshapes become views: with one key-value head neither keys nor values are copied to all heads; where values are
    a slice of a projection they keep all of it (GPT-NeoX: queries and keys beside them; DeepSeek: the keys' part
    without a position). Falcon and Phi-3 slice in several ways, and GPT-2 in fp32: left out here.
    """
    shape = model.shape
    one = job_of(model, attention="eager")
    first, second, third = by_batch(one, range(1, 4))
    tokens, width = one.workload.seq, one.strategy.element_bytes
    each = 0
    if shape.kv_heads == 1 < shape.heads:
        each = -2 * (shape.queries - shape.keys)
    elif model.family == "gpt_neox":
        each = 2 * shape.hidden
    elif model.family.startswith("deepseek") and shape.heads > 1:
        each = shape.heads * model.config["qk_nope_head_dim"]
    assert first == 2 * second - third + kept_row(model) + shape.layers * width * tokens * each


@few
@given(keys, st.integers(2, 60))
def test_eager_attention_is_a_quadratic_of_the_sequence(model, seq):
    found = [saved(job_of(model, at, attention="eager", micro_batch=2)) for at in range(seq, seq + 4)]
    assert differences(found, 3) == [0]
    assert min(differences(found, 2)) > 0


@few
@given(keys.filter(lambda model: model.family not in UNFUSED), st.integers(2, 60), precisions)
def test_fused_attention_is_linear_in_the_sequence(model, seq, precision):
    """Where torch takes the memory-efficient kernel (fp32, heads that differ), the log-sum-exp's rows (4 bytes, n heads,
    b sequences) come in tiles of 32: without what fills the last tile it is linear too. Where no kernel takes the heads
    there are scores, and a square.
    """
    one = job_of(model, attention="sdpa", micro_batch=2, precision=precision)
    kept = {(each.part, each.operator) for make in counted(one).makes for each in make.kept}
    filled = 4 * 2 * model.shape.heads * model.shape.layers if ("scores", "EfficientAttention") in kept else 0
    found = [
        saved(one._replace(workload=Workload(seq=at))) - filled * (round_up(at, TILE) - at) for at in range(seq, seq + 4)
    ]
    assert (set(differences(found, 2)) == {0}) == (("scores", "Softmax") not in kept)


@few
@given(keys, precisions, attentions, st.integers(0, 3))
def test_checkpointing_raises_the_peak_by_a_layer_at_most(model, precision, attention, stage):
    """Of the whole GPU, at every stage; and what is saved never grows."""
    one = job_of(model, 48, precision=precision, attention=attention, stage=stage, micro_batch=2)
    plain, again = ledger(one), ledger(one.at(checkpointing="full"))
    layer = max(make.bytes for make in counted(one).makes)
    assert total(again.gpu.peak.lines) <= total(plain.gpu.peak.lines) + layer
    kept, fewer = alone(one), alone(one.at(checkpointing="full"))
    assert fewer.saved <= kept.saved
    assert fewer.forward_peak <= kept.forward_peak


@few
@given(keys, precisions, attentions, st.integers(0, 3), st.sampled_from(["none", "full"]))
def test_lines_by_kind_add_up_to_the_one_line_of_a_ledger_that_nobody_asks(model, precision, attention, stage, checkpointing):
    one = job_of(model, precision=precision, attention=attention, stage=stage, checkpointing=checkpointing, micro_batch=2)
    told, untold = ledger(one), ledger(one, detail=Detail.WHOLE)
    for phase in told.gpu.phases:
        lines, summed = told.gpu.worst(phase).lines, untold.gpu.worst(phase).lines
        assert total(lines) == total(summed)
        assert total(filter(is_activation, lines)) == total(filter(is_activation, summed))
    found = counted(one)
    assert found.bytes == alone(one).saved
    parts = [each.bytes for make in found.makes for each in make.kept * make.layers] + [each.bytes for each in found.rest]
    assert sum(parts) == alone(one).saved


@settings(few, max_examples=8)
@given(st.data())
def test_a_list_of_micro_batches_gives_what_each_gives_alone(data):
    """Evaluated one after the other, in any order, from what is remembered; alone, on a model built anew."""
    key = data.draw(st.sampled_from(sorted(CONFIGS)))
    batches = data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=5))
    stage, attention = data.draw(st.integers(0, 3)), data.draw(attentions)
    model = built(CONFIGS[key])
    one = job_of(model, stage=stage, attention=attention)
    together = [everything(one.at(micro_batch=batch)) for batch in batches]
    each = [everything(job_of(built(CONFIGS[key]), stage=stage, attention=attention, micro_batch=batch)) for batch in batches]
    assert together == each


def everything(one: Job) -> tuple[Any, ...]:
    found = ledger(one)
    moments = tuple((moment.phase, moment.place, tuple((x.name, x.bytes) for x in moment.lines)) for moment in found.gpu.moments)
    return alone(one), moments


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_counted(family):
    config = next(config for config in CONFIGS.values() if config["model_type"] == family)
    one = job_of(built(config), micro_batch=2, attention="eager")
    assert saved(one) == counted(one).bytes > 0


class Column(list):
    """As little of an array as a formula needs: arithmetic element by element."""

    def _with(self, other, act):
        others = other if isinstance(other, Column) else [other] * len(self)
        return Column(act(one, another) for one, another in zip(self, others, strict=True))

    def __add__(self, other): return self._with(other, lambda x, y: x + y)
    def __mul__(self, other): return self._with(other, lambda x, y: x * y)
    def __floordiv__(self, other): return self._with(other, lambda x, y: x // y)
    def __rfloordiv__(self, other): return Column(other // x for x in self)
    def __pow__(self, other): return self._with(other, lambda x, y: x**y)
    def __neg__(self): return self * -1
    __radd__, __rmul__ = __add__, __mul__  # fmt: skip


FORMULAS = [
    formula
    for room in (activations, korthikanti, zero_infinity)
    for formula in vars(room).values()
    if callable(formula) and formula.__module__ == room.__name__
]


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.__name__)
@settings(few, max_examples=10)
@given(st.data())
def test_a_formula_over_an_array_gives_what_it_gives_over_each(formula, data):
    """Micro-batches, tokens, whatever it takes: any one of its symbols, or all of them, as an array."""
    names = formula.__annotations__.keys() - {"return"}
    rows = [{name: data.draw(st.integers(1, 5000)) for name in names} for _ in range(3)]
    expected = [formula(**row) for row in rows]
    assert formula(**{name: Column(row[name] for row in rows) for name in names}) == expected
    for name in names:
        varied = formula(**{**rows[0], name: Column(row[name] for row in rows)})
        assert varied == [formula(**{**rows[0], name: row[name]}) for row in rows]
