"""A formula's docstring is the formula: its equation, evaluated, gives what the function gives."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import getmembers, isfunction, signature
from math import ceil, log2, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan import formulas, quantities
from zeroplan.ledger import provenance
from zeroplan.sources import KINDS, SOURCES
from zeroplan.symbols import SYMBOLS

ROOMS = (
    "states", "transient", "hosted", "activations", "volume", "outside", "muon", "zenflow", "copied", "timing",
    "korthikanti", "zero_infinity", "megatron", "fused", "fully_sharded",
)  # fmt: skip
NOT_FORMULAS = {"ceil_div", "power_of_two", "sqrt", "log2"}
SUMS = (
    quantities.peak, quantities.needed, quantities.free, quantities.tokens_per_gpu, quantities.mfu, quantities.mfu_causal,
    quantities.mfu_frozen, quantities.mfu_causal_frozen, quantities.hfu, quantities.earliest, quantities.latest,
)  # fmt: skip
FORMULAS = [
    function
    for room in ROOMS
    for name, function in getmembers(import_module(f"{formulas.__name__}.{room}"), isfunction)
    if name not in NOT_FORMULAS
] + list(SUMS)
PYTHON = str.maketrans({"·": "*", "⌈": " ceil(", "⌉": ")", "^": "**", "√": " sqrt"})


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.__name__)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_the_docstring_computes_what_the_code_computes(formula, data):
    values = {name: data.draw(st.integers(1, 10**4)) for name in signature(formula).parameters}
    if {"flat", "n_d"} <= values.keys():
        values["flat"] *= values["n_d"]  # F is padded to a multiple of the ranks
    letters = {SYMBOLS[name].letter: value for name, value in values.items()}
    equation = provenance(formula).equation.translate(PYTHON)
    equation = re.sub(r"log2 (\w+)", r"log2(\1)", equation)
    said = eval(equation, {"ceil": ceil, "log2": log2, "sqrt": sqrt, "max": max, "min": min}, letters)
    assert formula(**values) == pytest.approx(said, rel=1e-12)


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda f: f.__name__)
def test_symbols_and_source_are_known(formula):
    assert set(signature(formula).parameters) <= SYMBOLS.keys()
    origin = provenance(formula)
    assert SOURCES[origin.source].kind in KINDS
    assert origin.meaning[0].islower() or origin.meaning[0].isupper()


def test_each_letter_means_one_thing():
    letters = [symbol.letter for symbol in SYMBOLS.values()]
    assert len(letters) == len(set(letters))
