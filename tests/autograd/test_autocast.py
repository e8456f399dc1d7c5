"""Every byte that a training step with fp32 weights holds under torch.autocast, against torch's own rules for CUDA
(autocast_torch_2.13.json).
"""

from __future__ import annotations

import json

import pytest

from tests.autograd.recorded import COUNTED, Case, held, name
from tests.conftest import REFERENCES
from zeroplan.architectures.registry import FAMILIES

CASES: list[Case] = json.loads((REFERENCES / "autocast_torch_2.13.json").read_text())["measured"]


def test_all_families_and_ways_are_recorded():
    assert {case["config"]["model_type"] for case in CASES} == set(FAMILIES)
    ways = {(case["autocast"], case["checkpointing"], case["attention"]) for case in CASES}
    attentions = ("eager", "sdpa")
    assert ways == {(low, again, one) for low in ("bf16", "fp16") for again in (True, False) for one in attentions}
    assert {case["kernel"] for case in CASES} == {None, "flash", "efficient", "cudnn"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{name(case)} {case['autocast']}")
def test_as_torch_casts(case: Case):
    assert held(case) == {counted: case[counted] for counted in COUNTED}


def test_each_weight_has_a_copy_and_each_linear_an_input_by_hand():
    """A layer of llama, 4 heads of 16, 2 of them for keys, h = 64, f = 96, T = 64 tokens. In fp32: two norms' inputs are
    the residual stream, 4Th each, with 4T and the normalized 4Th; queries and keys after rotation are cast for attention.
    In 16 bit: seven Linears' inputs (h five times, q, f), their weights, v, q, k and the output (which is o's input), the
    gate, its activation and up (f each); a log-sum-exp of 4Tn and 24 bytes of random state.
    """
    config = {"model_type": "llama", "vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
              "hidden_size": 64, "head_dim": 16, "intermediate_size": 96}  # fmt: skip
    case = {"batch": 2, "seq": 32, "dtype": "fp32", "autocast": "bf16", "attention": "sdpa", "device": "card",
            "kernel": "flash", "checkpointing": False}  # fmt: skip
    one, two = ({**case, "config": {**config, "num_hidden_layers": layers}} for layers in (1, 2))
    tokens, h, f, q, k, n = 64, 64, 96, 64, 32, 4
    norms = 2 * tokens * (4 * h + 4 * h + 4)
    inputs = 2 * tokens * (5 * h + f)
    weights = 2 * (h * q + 2 * h * k + q * h + 3 * h * f)
    attention = 2 * tokens * (q + k + k + q) + 4 * tokens * n + 24
    mlp = 2 * tokens * 3 * f
    assert held(two)["saved"] - held(one)["saved"] == norms + inputs + weights + attention + mlp
