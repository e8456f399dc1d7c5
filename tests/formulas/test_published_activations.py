"""Closed forms of activations against the figures and tables that print them.

korthikanti.csv: Figures 1 and 7 of arXiv 2205.05198 as calculon (github.com/calculon-ai/calculon, calculon/llm/
validation.py and validation/seqsel) states them in numbers, with the jobs behind them: 8-way tensor parallel, sequence
2,048, vocabulary and embeddings aside. Figure 7 was read off the drawing by calculon's authors.
zero_infinity_figure_2a.csv: the models of Figure 2a of arXiv 2104.07857. Its layers, widths and heads, and the cells
"printed, recalled", are from memory and were not read in the paper again; the 25 cells "recomputed" follow from
equations 1 to 5 and those shapes, to three decimals. Sequence 1,024; a batch of 32 for checkpoints, 4 a GPU for AWM.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from fractions import Fraction

import pytest

from tests.conftest import REFERENCES
from zeroplan.formulas import korthikanti, zero_infinity

SEQ = 2048


def read(name):
    return list(csv.DictReader((REFERENCES / name).read_text().splitlines()))


KORTHIKANTI = read("korthikanti.csv")
FIGURE_2A = read("zero_infinity_figure_2a.csv")
FORMS = {
    "tensor parallel": korthikanti.tensor_parallel,
    "tensor + sequence parallel": korthikanti.tensor_sequence_parallel,
    "tensor parallel, selective": lambda b, s, h, a, t: korthikanti.tensor_parallel_selective(b, s, h, t),
    "tensor + sequence parallel, selective": lambda b, s, h, a, t: korthikanti.tensor_sequence_parallel_selective(b, s, h, t),
    "full": lambda b, s, h, a, t: korthikanti.full_recomputation(b, s, h),
}


def of_a_layer(row, kind):
    return FORMS[kind](int(row["batch"]), SEQ, int(row["hidden"]), int(row["heads"]), int(row["tensor"]))


def label(row):
    return "-".join(row[name] for name in ("model", "place", "kind", "quantity", "origin") if name in row)


@pytest.mark.parametrize("row", [row for row in KORTHIKANTI if row["place"] == "Figure 1"], ids=label)
def test_korthikanti_figure_1(row):
    """The first of p stages has p micro-batches of L/p layers in flight; interleaved in m chunks 1 + (p-1)/(p·m) times that."""
    p, m = int(row["pipeline"]), int(row["chunks"])
    layers = int(row["layers"]) * (1 + (Fraction(p - 1, p * m) if m > 1 else 0))
    predicted = layers * of_a_layer(row, row["kind"]) / 2**30
    assert abs(float(predicted) - float(row["printed"])) <= 0.005


@pytest.mark.parametrize("row", [row for row in KORTHIKANTI if row["place"] == "Figure 7"], ids=label)
def test_korthikanti_figure_7(row):
    """As a share of tensor parallelism alone, within what a reading off a bar is good for."""
    predicted = 100 * of_a_layer(row, row["kind"]) / of_a_layer(row, "tensor parallel")
    assert predicted == pytest.approx(float(row["printed"]), abs=0.15)


def test_korthikanti_is_whole():
    assert len([row for row in KORTHIKANTI if row["place"] == "Figure 1"]) == 8
    assert {(row["model"], row["kind"]) for row in KORTHIKANTI if row["place"] == "Figure 7"} == {
        (model, kind) for model in ("GPT 22B", "GPT 175B", "GPT 530B", "GPT 1T") for kind in FORMS
    }


# Korthikanti et al. §4.1: 5as/h is 80 for GPT-3 (96 heads, h = 12,288) and 64 for MT-NLG (128 heads, h = 20,480).
@pytest.mark.parametrize(("heads", "hidden", "printed"), [(96, 12288, 80), (128, 20480, 64)])
def test_scores_beside_34(heads, hidden, printed):
    assert korthikanti.scores(1, SEQ, heads) == printed * SEQ * hidden


@pytest.mark.parametrize(("b", "s", "h", "a"), [(1, 2048, 12288, 96), (4, 2048, 6144, 64), (3, 7, 40, 5)])
def test_table_2_is_the_sum_of_its_parts_and_without_parallelism_one_rank(b, s, h, a):
    parts = (
        korthikanti.norms(b, s, h), korthikanti.attention(b, s, h), korthikanti.scores(b, s, a),
        korthikanti.mlp(b, s, h), korthikanti.dropout_masks(b, s, h),
    )  # fmt: skip
    whole = korthikanti.no_parallelism(b, s, h, a)
    assert sum(parts) == whole
    assert whole == korthikanti.tensor_parallel(b, s, h, a, 1) == korthikanti.tensor_sequence_parallel(b, s, h, a, 1)
    selective = whole - korthikanti.scores(b, s, a)
    assert selective == korthikanti.tensor_parallel_selective(b, s, h, 1)
    assert selective == korthikanti.tensor_sequence_parallel_selective(b, s, h, 1)


UNITS = {"T": 10**12, "TiB": 2**40, "GiB": 2**30}
QUANTITIES = {
    "parameters": lambda b, h, a, layers: zero_infinity.parameters(h, layers),
    "model states": lambda b, h, a, layers: zero_infinity.model_states(h, layers),
    "activation checkpoints": lambda b, h, a, layers: zero_infinity.activation_checkpoints(b, 1024, h, layers, 1),
    "model-state working memory": lambda b, h, a, layers: zero_infinity.model_state_working_memory(h),
    "activation working memory": lambda b, h, a, layers: zero_infinity.activation_working_memory(b, 1024, h, a, 1),
}


@pytest.mark.parametrize("row", FIGURE_2A, ids=label)
def test_zero_infinity_figure_2a(row):
    sizes = (int(row[name]) for name in ("batch", "hidden", "heads", "layers"))
    predicted = Decimal(QUANTITIES[row["quantity"]](*sizes)) / UNITS[row["unit"]]
    last_digit = Decimal(1).scaleb(Decimal(row["value"]).as_tuple().exponent)
    assert abs(predicted - Decimal(row["value"])) <= last_digit / (2 if row["origin"] == "recomputed" else 1)


def test_figure_2a_is_whole():
    recomputed = {(row["model"], row["quantity"]) for row in FIGURE_2A if row["origin"] == "recomputed"}
    assert recomputed == {(m, q) for m in ("0.1T", "0.5T", "1.01T", "10.05T", "101.47T") for q in QUANTITIES}
