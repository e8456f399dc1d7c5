"""What each operator keeps, in bytes and as an equation, against recorded runs of torch and measured closed forms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.autograd.recorded import WIDTHS, Case, name, read, recomputing_of
from tests.conftest import REFERENCES
from zeroplan.architectures.read import read_config
from zeroplan.architectures.registry import family
from zeroplan.architectures.saved_activations import LETTERS, saved, with_names
from zeroplan.autograd.equation import JOINT, equation, terms, value
from zeroplan.specs.account import SavedActivations
from zeroplan.specs.model import TimelineRequest
from zeroplan.symbols import SYMBOLS

CASES = [*read(), *json.loads((REFERENCES / "checkpointing_torch_2.13.json").read_text())["measured"]]


def kept_of(case: Case) -> SavedActivations:
    model_type, config = read_config(dict(case["config"]), "recorded")
    kernel = "cpu" if case["device"] == "cpu" else case["kernel"] or "flash"
    request = TimelineRequest(
        batch=case["batch"], seq=case["seq"], width=WIDTHS[case["dtype"]], half=False, attention=case["attention"],
        kernel=kernel, recomputing=recomputing_of(case), zero_linear=False,
    )  # fmt: skip
    return saved(*with_names(config, family(model_type)[1]), request)


def evaluated(text: str, sizes: dict[str, Any]) -> Any:
    """The equation as printed, at these sizes."""
    letters = dict(sizes)
    for letter, product in JOINT:
        if all(name in sizes for name in product):
            found = 1
            for each, exponent in product.items():
                found = found * sizes[each] if exponent > 0 else found / sizes[each]
            letters.setdefault(letter, found)
    return eval(text.replace("·", "*").replace("^", "**") or "0", {}, letters)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_bytes_are_those_that_torch_kept_and_every_equation_gives_them(case):
    found = kept_of(case)
    assert found.bytes == case["saved"]
    for each in (*found.rest, *(each for make in found.makes for each in make.kept)):
        assert value(terms(each.bytes), found.sizes) == each.bytes
        assert evaluated(equation(each.bytes), found.sizes) == pytest.approx(int(each.bytes), rel=1e-12)
    layers = case["config"].get("num_hidden_layers") or case["config"]["n_layer"]
    assert sum(make.layers for make in found.makes) == layers


def test_letters_are_those_of_the_nomenclature():
    known = {symbol.letter for symbol in SYMBOLS.values()}
    assert {*LETTERS.values(), "b", "s", "w"} <= known
    assert {letter for letter, _product in JOINT} <= known


# One layer in bytes, as measured on torch 2.13 and transformers 5.23 operator by operator: R an RMSNorm and the linear
# layers behind it, N a LayerNorm (mean and deviation in the dtype on the CPU), A attention, M the MLP.
def rms(v):
    return (4 + 2 * v["w"]) * v["T"] * v["h"] + 4 * v["T"]


def norm(v):
    return 2 * v["w"] * v["T"] * v["h"] + 2 * v["w"] * v["T"]


def fused(v):
    return 2 * v["w"] * v["T"] * (v["q"] + v["k"]) + 4 * v["T"] * v["n"]


def eager(v):
    return 4 * v["w"] * v["T"] * v["q"] + (4 + v["w"]) * v["n"] * v["T"] * v["s"]


def gated(v):
    return 4 * v["w"] * v["T"] * v["f"]


def head_norms(v):
    return (4 + v["w"]) * v["T"] * (v["q"] + v["k"]) + 4 * v["T"] * (v["n"] + v["ν"])


MEASURED = {
    ("llama", "sdpa"): lambda v: 2 * rms(v) + fused(v) + gated(v),
    ("llama", "eager"): lambda v: 2 * rms(v) + eager(v) + gated(v),
    ("qwen2", "sdpa"): lambda v: 2 * rms(v) + fused(v) + gated(v),
    ("qwen3", "sdpa"): lambda v: 2 * rms(v) + fused(v) + gated(v) + head_norms(v),
    ("qwen3", "eager"): lambda v: 2 * rms(v) + eager(v) + gated(v) + head_norms(v),
    ("gpt2", "eager"): lambda v: 2 * norm(v) + 4 * v["w"] * v["T"] * v["h"] + v["w"] * v["n"] * v["T"] * v["s"] + 5 * v["w"] * v["T"] * v["f"],
    ("bloom", "eager"): lambda v: 2 * norm(v) + 12 * v["w"] * v["T"] * v["h"] + (4 + v["w"]) * v["n"] * v["T"] * v["s"],
}  # fmt: skip
BASE = {
    "vocab_size": 97, "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 24, "intermediate_size": 104,
}  # fmt: skip
GPT = {"vocab_size": 97, "n_embd": 96, "n_layer": 2, "n_head": 6, "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0}
CONFIGS = {
    "gpt2": GPT,
    "bloom": {"vocab_size": 97, "hidden_size": 96, "n_layer": 2, "n_head": 6, "hidden_dropout": 0, "attention_dropout": 0},
}


@pytest.mark.parametrize(("model_type", "attention"), MEASURED, ids="-".join)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_a_layers_equation_is_the_measured_one_at_any_size(model_type, attention, dtype):
    """In fp32 nothing is cast: no second copy of the softmax. (A norm's fp32 input is then the residual stream itself.)"""
    config = {"model_type": model_type, **CONFIGS.get(model_type, BASE)}
    case = {"config": config, "batch": 3, "seq": 40, "dtype": dtype, "attention": attention, "device": "cpu",
            "kernel": None, "checkpointing": False}  # fmt: skip
    found = kept_of(case)
    (make,) = found.makes
    for scale in (1, 2, 5):  # of the polynomial, not of a run
        sizes = {letter: size * (scale if letter != "w" else 1) for letter, size in found.sizes.items()}
        v = {"T": sizes["b"] * sizes["s"], "q": sizes["n"] * sizes.get("d", 0), "k": sizes.get("ν", 0) * sizes.get("d", 0), **sizes}
        v["n"] = sizes["n"]
        expected = MEASURED[model_type, attention](v)
        if dtype == "fp32" and attention == "eager" and model_type not in ("gpt2",):
            expected -= v["w"] * v["n"] * v["T"] * v["s"]
        assert value(terms(make.bytes), sizes) == expected, equation(make.bytes)

