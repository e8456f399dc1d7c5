"""Attention alone checkpointed, against torch's own run of transformers' models with its interface wrapped.

Cases are in tests/references/selective_torch_2.13.json; where torch and transformers are installed, more of each
family are drawn, measured and compared, as in test_against_torch.
"""

from __future__ import annotations

import json

import pytest

from tests.autograd.recorded import COUNTED, Case, held, measured_now, name
from tests.autograd.test_flops import counted
from tests.conftest import REFERENCES
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config

CASES: list[Case] = json.loads((REFERENCES / "selective_torch_2.13.json").read_text())["measured"]


def has_mask(case: Case) -> bool:
    """A window shorter than the sequence, which sdpa is told by a mask."""
    window = case["config"].get("sliding_window")
    return bool(window) and case["seq"] >= window


def test_enough_of_everything_is_recorded():
    assert len(CASES) >= 80
    assert len({case["config"]["model_type"] for case in CASES}) == 23
    assert {case["dtype"] for case in CASES} == {"fp32", "bf16", "fp16"}
    assert {case["kernel"] for case in CASES} == {None, "flash", "efficient", "cudnn"}
    assert {(case["attention"], has_mask(case)) for case in CASES} == {
        (attention, masked) for attention in ("eager", "sdpa") for masked in (True, False)
    }


@pytest.mark.parametrize("case", CASES, ids=name)
def test_as_torch_measured(case: Case):
    assert held(case) == {counted: case[counted] for counted in COUNTED}


@pytest.mark.parametrize("case", CASES, ids=name)
def test_as_torch_counts_operations(case: Case):
    found, plain = counted(case), counted({**case, "selective": False})
    assert (found.forward, found.backward + found.recomputed) == (case["forward"], case["backward"])
    assert (found.forward, found.backward) == (plain.forward, plain.backward)
    assert found.recomputed > 0


FUSED = [case for case in CASES if case["kernel"] == "flash" and not has_mask(case)]


@pytest.mark.parametrize("case", FUSED, ids=name)
def test_a_fused_kernel_leaves_next_to_nothing_to_spare(case: Case):
    """The log-sum-exp, 4 bytes of each query and head, and 24 bytes of random state; the checkpoint keeps the positions,
    8 bytes a token, which most families tell their attention and nothing else keeps.
    """
    config = case["config"]
    sums = 4 * case["batch"] * config["num_attention_heads"] * case["seq"] + 24
    positions = 0 if config["model_type"] == "gpt_bigcode" else 8 * case["seq"]
    assert held({**case, "selective": False})["saved"] - case["saved"] == config["num_hidden_layers"] * sums - positions


@pytest.mark.filterwarnings("ignore")
def test_as_torch_measures_now():
    measured_now("make_selective_reference")


def test_families_with_an_attention_of_their_own():
    config = {"vocab_size": 60, "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1}
    for family in ("bloom", "falcon"):
        model = model_of(*read_config({"model_type": family, **config}, "a test"), name="case", source="case")
        assert "eager" in model.own_attention
    reordering = {"model_type": "gpt2", "reorder_and_upcast_attn": True, "n_embd": 32, "n_head": 2, "vocab_size": 60}
    assert model_of(*read_config(reordering, "a test"), name="case", source="case").own_attention == ("eager",)
