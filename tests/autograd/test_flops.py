"""Operations of matrix products against torch's FlopCounterMode on transformers' models, to the last one."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from tests.autograd.recorded import Case, name, recomputing_of
from tests.conftest import REFERENCES
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.specs.account import Flops
from zeroplan.specs.model import TimelineRequest

CASES: list[Case] = json.loads((REFERENCES / "flops_torch_2.13.json").read_text())["measured"]


def counted(case: Case, *, causal: bool = False, **changes: object) -> Flops:
    family, config = read_config(dict(case["config"]), "recorded")
    request = TimelineRequest(
        batch=case["batch"], seq=case["seq"], width=4 if case["dtype"] == "fp32" else 2, half=False,
        attention=case["attention"], zero_linear=False,
        kernel="cpu" if case["device"] == "cpu" else case["kernel"] or "flash", recomputing=recomputing_of(case),
    )  # fmt: skip
    found = model_of(family, config, name="case", source="case").profile.flops(request._replace(**changes), causal=causal)
    assert found is not None
    return found


def test_all_families_and_ways():
    assert len({case["config"]["model_type"] for case in CASES}) == 26
    ways = {(case["every"] > 0, case["reentrant"], case["keeps_products"]) for case in CASES if case["checkpointing"]}
    assert ways == {(True, False, False), (True, True, False), (True, False, True)}
    assert {case["kernel"] for case in CASES} >= {None, "efficient", "cudnn"}


@pytest.mark.parametrize("case", CASES, ids=name)
def test_as_torch_counts(case: Case):
    found = counted(case)
    assert (found.forward, found.backward + found.recomputed) == (case["forward"], case["backward"])
    plain = counted(case | {"every": 0, "reentrant": False, "keeps_products": False})
    assert (plain.forward, plain.backward, plain.recomputed) == (found.forward, found.backward, 0)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_deepspeeds_linear_multiplies_as_much(case: Case):
    found, torchs = counted(case, zero_linear=True), counted(case)
    assert (found.forward, found.backward) == (torchs.forward, torchs.backward)
    if case["reentrant"] or not case["checkpointing"]:
        assert found == torchs
    else:  # it saves its input once it has run, so a layer that stops at its last linear layer runs that again too
        assert found.recomputed >= torchs.recomputed


def test_by_hand():
    """One layer of Llama without checkpointing: h = 8, 2 heads of 8, f = 12, V = 20, on 2 sequences of 6 tokens."""
    config = {
        "model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1,
        "intermediate_size": 12, "vocab_size": 20, "num_hidden_layers": 1, "head_dim": 8,
    }  # fmt: skip
    case = {"config": config, "batch": 2, "seq": 6, "dtype": "bf16", "attention": "sdpa", "device": "meta",
            "kernel": "flash", "checkpointing": False}  # fmt: skip
    linear = 2 * 12 * (8 * 16 + 2 * 8 * 8 + 16 * 8 + 3 * 8 * 12 + 8 * 20)
    scores = 2 * (2 * 2) * 6 * 6 * 8  # one product over pairs of tokens
    assert counted(case) == Flops(linear + 2 * scores, 2 * linear + 5 * scores, 0)
    seen = Fraction(6 * 7 // 2, 6 * 6)  # pairs of a token and one not after it
    assert counted(case, causal=True) == Flops(linear + 2 * scores * seen, 2 * linear + 5 * scores * seen, 0)
    eager = counted(case | {"attention": "eager"}, causal=True)
    assert eager == Flops(linear + 2 * scores, 2 * linear + 4 * scores, 0)
