from __future__ import annotations

import pytest

from zeroplan.deepspeed.keys import KEYS


def test_a_line_shows_formula_symbols_values_and_source(zeroplan):
    ran = zeroplan("explain", "optimizer states", "--params", "7B", "--gpus", "8")
    text = " ".join(ran.out.split())
    assert ran.code == 0
    for said in (
        "⌈K·Ψ / N⌉",
        "⌈12·7,000,000,000 / 8⌉",
        "10,500,000,000",
        "data-parallel ranks",
        "§5.1",
        "arxiv.org/abs/1910.02054",
    ):
        assert said in text


@pytest.mark.parametrize("term", ["reduce_bucket_size", "zero_optimization.reduce_bucket_size"])
def test_a_key_shows_default_unit_and_place(zeroplan, term):
    ran = zeroplan("explain", term)
    assert ran.code == 0
    for said in ("500,000,000 elements", "hidden_size * hidden_size", "runtime/zero/config.py"):
        assert said in ran.out


@pytest.mark.parametrize("path", [p for p in KEYS if p.startswith(("zero_optimization.", "aio."))])
def test_every_zero_and_aio_key_is_explained(zeroplan, path):
    ran = zeroplan("explain", path)
    assert ran.code == 0
    assert path in ran.out


@pytest.mark.parametrize(
    "term", ["gradients", "all-gather", "reduce bucket", "gathered parameters", "logits", "checkpoints"]
)
def test_lines_transfers_and_formulas(zeroplan, term):
    assert zeroplan("explain", term, "--checkpointing", "full", "--json").json["entries"]


def test_an_unknown_term_suggests_the_nearest(zeroplan):
    ran = zeroplan("explain", "optimiser state")
    assert ran.code == 2
    assert "optimizer states" in ran.err
