"""How the bytes of a step grow, for models that transformers has run (activations_torch_2.13.json)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.autograd.recorded import Case, held, read

CASES = read()
PROBABILITIES = {"attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"}
"""Of attention's dropout."""


def series(case: Case, field: str, values: range, counted: str = "saved") -> list[int]:
    return [held(case, **{field: value})[counted] for value in values]


def differences(numbers: list[int], order: int) -> list[int]:
    for _ in range(order):
        numbers = [after - before for before, after in pairwise(numbers)]
    return numbers


def fuses(case: Case) -> bool:
    """Its attention never holds a number for each pair of tokens.

    Falcon gives a mask to every kernel; BLOOM and gpt-oss have no attention but their own. The CPU's kernel
    takes neither dropout nor values of another width than keys, where all scores are made.
    """
    config, family = case["config"], case["config"]["model_type"]
    if family in {"falcon", "bloom", "gpt_oss"}:
        return False
    drops = any(value for field, value in config.items() if field in PROBABILITIES)
    return case["device"] == "meta" or not (drops or family.startswith("deepseek"))


def keeps_no_pairs(case: Case) -> bool:
    """Checkpointed, and an encoder: there is no mask to keep."""
    config = case["config"]
    return case["checkpointing"] and config["model_type"] == "bert" and not config["is_decoder"]


def with_config(case: Case, **fields: Any) -> Case:
    return {**case, "config": {**case["config"], **fields}}


def with_layers(case: Case, layers: int) -> Case:
    return with_config(case, **{"n_layer" if "n_layer" in case["config"] else "num_hidden_layers": layers})


cases = st.sampled_from(CASES)
slowly = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@slowly
@given(cases)
def test_bytes_by_batch(case: Case):
    """From two sequences on, what is saved grows by the same for each.

    (One sequence alone leaves some tensors contiguous that torch copies otherwise.) A peak is the largest of moments that
    each grow so: it may go over from one moment to another, and then grows faster.
    """
    assert set(differences(series(case, "batch", range(2, 6)), 2)) == {0}
    for peak in ("forward_peak", "backward_peak"):
        assert min(differences(series(case, "batch", range(2, 6), peak), 2)) >= 0


@slowly
@given(cases, st.integers(2, 60))
def test_eager_attention_saves_bytes_by_the_square_of_the_sequence(case: Case, seq: int):
    case = {**case, "attention": "eager"}
    saved = series(case, "seq", range(seq, seq + 5))
    assert set(differences(saved, 3)) == {0}
    assert min(differences(saved, 2)) > 0 or keeps_no_pairs(case)


@slowly
@given(cases.filter(fuses), st.integers(2, 60), st.sampled_from(["flash", "efficient", "cudnn"]))
def test_fused_attention_saves_bytes_by_the_sequence(case: Case, seq: int, kernel: str):
    """The memory-efficient kernel rounds the rows of its log-sum-exp up to 32: there by steps of 32 tokens."""
    case = {**case, "attention": "sdpa", "kernel": kernel if case["device"] == "meta" else None}
    if "sliding_window" in case["config"]:
        case = with_config(case, sliding_window=4096)
    step = 32 if case["kernel"] == "efficient" else 1
    assert set(differences(series(case, "seq", range(seq, seq + 4 * step, step)), 2)) == {0}


@slowly
@given(cases, st.integers(1, 4))
def test_checkpointing_costs_no_more_than_a_layer(case: Case, layers: int):
    """It never saves more, nor takes forward higher. With one layer alone it may take backward higher: the layer keeps
    its arguments until it has run again, masks and positions among them, which nothing else keeps."""
    plain = held(with_layers(case, layers), checkpointing=False)
    again = held(with_layers(case, layers), checkpointing=True)
    assert again["saved"] <= plain["saved"]
    assert again["forward_peak"] <= plain["forward_peak"]
    one_more = held(with_layers(case, layers + 1), checkpointing=False)["saved"] - plain["saved"]
    assert again["backward_peak"] <= plain["backward_peak"] + (one_more if layers == 1 else 0)
