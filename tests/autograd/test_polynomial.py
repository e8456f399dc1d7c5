"""Named sizes: the number is what plain integers give, and the polynomial has that value."""

from __future__ import annotations

from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st

from zeroplan.arithmetic import round_up
from zeroplan.autograd.equation import Polynomial, equation, named, terms, value
from zeroplan.autograd.strides import broadcast

sizes = st.fixed_dictionaries({letter: st.integers(1, 60) for letter in "bsndh"})
few = settings(max_examples=60, deadline=None, derandomize=True)


def holds(size: int, of: dict[str, int]) -> bool:
    return value(terms(size), of) == size


@few
@given(sizes)
def test_arithmetic(of):
    b, s, n, d, h = (named(letter, of[letter]) for letter in "bsndh")
    for size in (b + s, 3 + n, h - d, 2 - b, -s, b * s * n * d, 4 * n * d + 2 * h, sum([b, s, 1]), prod((b, s, h)), (b + s) * (n - h)):
        assert isinstance(size, Polynomial)
        assert holds(size, of)
    assert b * s * (n * d + 2 * h) == of["b"] * of["s"] * (of["n"] * of["d"] + 2 * of["h"])


@few
@given(sizes)
def test_an_exact_quotient_is_a_polynomial_and_any_other_a_number(of):
    b, s, n, d, h = (named(letter, of[letter]) for letter in "bsndh")
    fused = n * d + 2 * h
    for dividend, divisor, quotient in ((b * s * fused, fused, b * s), (b * s * fused, b, s * fused), (fused * (b + s), b + s, fused)):
        assert terms(dividend // divisor) == terms(quotient)
        assert dividend // divisor == int(dividend) // int(divisor)
    assert terms(-(b * s * fused) // fused) == terms(-b * s)
    for left, right in ((h, n), (b * s + 1, d), (7, d), (round_up(s, 32), 1)):
        assert left // right == int(left) // int(right)
        assert holds(left // right, of)


@few
@given(sizes, st.floats(0.1, 1))
def test_a_share_is_a_number(of, share):
    assert int(share * named("d", of["d"])) == int(named("d", of["d"]) * share) == int(share * of["d"])


def test_of_one_element_the_named_one_gives_the_shape():
    b, h = named("b", 1), named("h", 5)
    for shapes in (((1, 1), (b, 3, h)), ((b, 1, h), (1, 3, 1))):
        assert equation(prod(broadcast(shapes))) == "3·b·h"


def test_as_a_formula_writes_it():
    """(4 + 2w)·T·h + 4·T is what an RMSNorm and the linear layers behind it keep (transformers modeling_llama)."""
    b, s, h, n, d, w = (named(letter, size) for letter, size in zip("bshndw", (2, 3, 12, 4, 3, 2), strict=True))
    assert equation(4 * b * s * h + 2 * w * b * s * h + 4 * b * s) == "(4 + 2·w)·T·h + 4·T"
    assert equation(b * n * s * s * (w + 1) + w * b * s * n * d) == "(1 + w)·n·T·s + w·T·q"
    assert equation(2 * b * s * (h // n) * named("ν", 2)) == "2·T·k"
    assert equation(w * s * (d // 3)) == "(1/3)·w·s·d"
    assert equation(8 * s - 5) == "8·s - 5"
    assert equation(0) == ""
