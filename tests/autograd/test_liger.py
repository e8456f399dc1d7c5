"""Every byte that a training step holds under Liger's kernels, against Liger's own Python (liger_0.8.5.json)."""

from __future__ import annotations

import json

import pytest

from tests.autograd.recorded import COUNTED, Case, name, run_of
from tests.conftest import REFERENCES
from zeroplan.architectures.forward_run import MULTIPROCESSORS
from zeroplan.architectures.read import build_module, read_config
from zeroplan.architectures.registry import LIGER_FAMILIES
from zeroplan.architectures.trace import run_step
from zeroplan.autograd.liger import chunk

CASES: list[Case] = json.loads((REFERENCES / "liger_0.8.5.json").read_text())["measured"]


def held(case: Case, kernels: str | None = None) -> dict[str, int]:
    family, config = read_config(dict(case["config"]), "recorded")
    run = run_of(case)
    run.kernels = kernels or case["kernels"]
    found = run_step(build_module(family, config), run)
    assert run.allocated == 0
    return found


def test_all_families_and_ways_are_recorded():
    assert {case["config"]["model_type"] for case in CASES} == LIGER_FAMILIES
    ways = {(case["kernels"], case["checkpointing"]) for case in CASES}
    assert ways == {(kernels, again) for kernels in ("liger", "liger-loss") for again in (True, False)}
    assert {case["kernel"] for case in CASES} == {None, "flash", "efficient", "cudnn"}
    assert {case["dtype"] for case in CASES} == {"fp32", "bf16", "fp16"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{name(case)} {case['kernels']}")
def test_as_liger_does(case: Case):
    assert held(case) == {counted: case[counted] for counted in COUNTED}


def test_a_layer_keeps_fewer_bytes():
    """Per token and layer of llama in bf16, sdpa: without Liger 2·(8h + 4) + 2·2·(q + k) + 4n + 8f; with it a norm
    keeps its input (2h), 4 bytes and the Linears' input (2h), the MLP gate, up and their product (6f).
    """
    config = {"model_type": "llama", "vocab_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
              "hidden_size": 64, "head_dim": 16, "intermediate_size": 96}  # fmt: skip
    case = {"batch": 2, "seq": 32, "dtype": "bf16", "attention": "sdpa", "device": "meta", "kernel": "cudnn",
            "checkpointing": False}  # fmt: skip

    def layer(kernels: str) -> int:
        one, two = ({**case, "config": {**config, "num_hidden_layers": layers}} for layers in (1, 2))
        return held(two, kernels)["saved"] - held(one, kernels)["saved"]

    tokens, h, q, k, n, f = 64, 64, 64, 32, 4, 96
    attention, seeds = tokens * (4 * (q + k) + 4 * n), 16
    assert layer("transformers") == layer("liger-loss") == tokens * (2 * (8 * h + 4) + 8 * f) + attention + seeds
    assert layer("liger") == tokens * (2 * (4 * h + 4) + 6 * f) + attention + seeds


@pytest.mark.parametrize(
    ("rows", "vocabulary", "width", "expected"),
    [(16_384, 32_000, 4096, 2048), (8192, 128_256, 4096, 256), (100, 1000, 4096, 100)],
)
def test_chunks(rows: int, vocabulary: int, width: int, expected: int):
    """The first is the example in Liger's source; 8192 rows over ⌈128256/4096⌉ = 32 are 256; one chunk at most."""
    assert chunk(rows, (vocabulary, width), 1) == expected


@pytest.mark.filterwarnings("ignore")
def test_as_liger_does_now():
    pytest.importorskip("torch")
    if pytest.importorskip("transformers").__version__ != "5.23.0":
        pytest.skip("another version of transformers was recorded")
    from importlib.metadata import PackageNotFoundError, version

    from tests.references import make_liger_reference as reference

    try:
        found = version("liger-kernel")
    except PackageNotFoundError:
        found = "none"
    if found != reference.VERSION:
        pytest.skip(f"liger-kernel {reference.VERSION} was recorded, found {found}")
    assert reference.MULTIPROCESSORS == MULTIPROCESSORS
    for case in reference.cases(1, 7):
        assert held(case) == {counted: case[counted] for counted in COUNTED}, case
