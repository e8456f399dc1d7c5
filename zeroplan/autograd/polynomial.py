"""Sizes that remember how they came about: integers that carry a polynomial in named sizes.

A model run with such sizes does what it does with plain ones, for a comparison sees the number alone; and every byte
count that comes out is an equation too. A quotient with a remainder is a number without a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod

Powers = tuple[tuple[str, int], ...]
"""Exponents by name, in the order of names; none is 0, some may be negative."""
Terms = dict[Powers, Fraction]
MOST_STEPS = 64
"""Most steps of a division by a sum."""


class Polynomial(int):
    """An integer, and the polynomial whose value it is."""

    terms: Terms

    def __new__(cls, value: int, terms: Terms) -> Polynomial:
        out = super().__new__(cls, value)
        out.terms = terms
        return out

    def __add__(self, other: int) -> Polynomial:
        return Polynomial(int(self) + int(other), _sum(self.terms, terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Polynomial:
        return Polynomial(-int(self), {powers: -factor for powers, factor in self.terms.items()})

    def __sub__(self, other: int) -> Polynomial:
        return self + -other

    def __rsub__(self, other: int) -> Polynomial:
        return -self + other

    def __mul__(self, other: int) -> Polynomial:
        if not isinstance(other, int):
            return NotImplemented  # by a share of it: a number
        return Polynomial(int(self) * int(other), _product(self.terms, terms(other)))

    __rmul__ = __mul__

    def __floordiv__(self, other: int) -> int:
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _quotient(other, self)


def named(letter: str, value: int) -> Polynomial:
    """A size under a name of its own."""
    return Polynomial(value, {((letter, 1),): Fraction(1)})


def terms(size: int) -> Terms:
    """The polynomial of a size; a plain number is a constant."""
    if isinstance(size, Polynomial):
        return size.terms
    return {(): Fraction(size)} if size else {}


def value(of: Terms, sizes: Mapping[str, int | Fraction]) -> Fraction:
    """The polynomial at these sizes."""
    total = Fraction(0)
    for powers, factor in of.items():
        total += factor * prod(Fraction(sizes[letter]) ** exponent for letter, exponent in powers)
    return total


def _sum(one: Terms, other: Terms) -> Terms:
    result = dict(one)
    for powers, factor in other.items():
        result[powers] = result.get(powers, Fraction(0)) + factor
    return {powers: factor for powers, factor in result.items() if factor}


def _product(one: Terms, other: Terms) -> Terms:
    result: Terms = {}
    for powers, factor in one.items():
        for more, times in other.items():
            joint = _joint(powers, more)
            result[joint] = result.get(joint, Fraction(0)) + factor * times
    return {powers: factor for powers, factor in result.items() if factor}


def _joint(one: Powers, other: Powers, sign: int = 1) -> Powers:
    """Exponents added, or with sign -1 subtracted."""
    result = dict(one)
    for letter, exponent in other:
        result[letter] = result.get(letter, 0) + sign * exponent
    return tuple(sorted((letter, exponent) for letter, exponent in result.items() if exponent))


def _quotient(dividend: int, divisor: int) -> int:
    """The polynomial quotient where numbers and polynomials both divide without a remainder, else the number."""
    number, remainder = divmod(int(dividend), int(divisor))
    by = terms(divisor)
    if remainder or not by:
        return number
    letters = sorted({letter for of in (by, terms(dividend)) for powers in of for letter, _exponent in powers})

    def leading(of: Terms) -> Powers:
        return max(of, key=lambda powers: [dict(powers).get(letter, 0) for letter in letters])

    first, rest, result = leading(by), terms(dividend), Terms()
    for _step in range(MOST_STEPS):
        if not rest:
            return Polynomial(number, result)
        highest = leading(rest)
        part = {_joint(highest, first, -1): rest[highest] / by[first]}
        result = _sum(result, part)
        rest = _sum(rest, {powers: -factor for powers, factor in _product(part, by).items()})
    return number
